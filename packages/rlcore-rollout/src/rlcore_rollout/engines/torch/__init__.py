"""An in-process sampling engine that uses the trainer's own weights."""
