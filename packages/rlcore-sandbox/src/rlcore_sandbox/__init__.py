"""Sandboxes for code that a model writes."""
