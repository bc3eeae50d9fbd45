"""Screens that are drawn instead of recorded: tasks whose target is only in the picture."""
