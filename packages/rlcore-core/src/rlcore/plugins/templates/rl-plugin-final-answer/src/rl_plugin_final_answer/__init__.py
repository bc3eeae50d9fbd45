"""A reward for the answer after ``####``."""
