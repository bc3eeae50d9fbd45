"""Layouts of checkpoints, each read into a `rlcore_merge.checkpoint.Checkpoint`."""
