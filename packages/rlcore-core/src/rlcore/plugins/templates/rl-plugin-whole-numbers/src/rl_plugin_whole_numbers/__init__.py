"""A calculator of whole numbers."""
