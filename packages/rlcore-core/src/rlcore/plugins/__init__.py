"""Discover and load plugins, and look up their components."""
