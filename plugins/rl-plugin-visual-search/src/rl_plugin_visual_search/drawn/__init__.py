"""Drawn pictures with a small target."""
