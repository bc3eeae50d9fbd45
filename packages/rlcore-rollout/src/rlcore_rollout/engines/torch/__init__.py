"""The engine that samples in this process, on the trainer's own weights."""
