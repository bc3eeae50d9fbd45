"""Distribute training steps over processes, and start these processes."""
