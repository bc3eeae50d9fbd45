"""Tasksets of verifiers."""
