"""A policy of continuous actions: a small network that sees the state."""
