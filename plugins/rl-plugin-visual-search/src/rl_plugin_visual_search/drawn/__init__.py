"""Drawn pictures: a small sign in a large cluttered picture, whose mark the model can only read in a crop."""
