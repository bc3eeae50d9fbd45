"""Readers of checkpoint layouts, each of which returns a `rlcore_merge.checkpoint.Checkpoint`."""
