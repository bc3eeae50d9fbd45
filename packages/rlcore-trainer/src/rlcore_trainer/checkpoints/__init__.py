"""Checkpoints, and the models that a run starts from."""
