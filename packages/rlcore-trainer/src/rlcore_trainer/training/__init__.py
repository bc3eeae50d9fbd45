"""Trainers: the loops from tasks to checkpoints."""
