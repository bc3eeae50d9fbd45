"""Models that are built on the spot."""
