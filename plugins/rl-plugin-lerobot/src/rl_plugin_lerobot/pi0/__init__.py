"""The pi0 family."""
