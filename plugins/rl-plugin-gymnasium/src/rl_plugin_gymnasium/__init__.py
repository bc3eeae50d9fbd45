"""Gymnasium environments as chat environments."""
