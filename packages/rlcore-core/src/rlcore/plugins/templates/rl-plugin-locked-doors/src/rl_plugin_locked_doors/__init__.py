"""A corridor of locked doors, and the data set, reward and recipe with which a model learns its keys."""
