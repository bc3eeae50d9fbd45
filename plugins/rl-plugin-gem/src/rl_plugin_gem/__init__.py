"""Environments of GEM as chat environments."""
