"""Datasets that come with the core."""
