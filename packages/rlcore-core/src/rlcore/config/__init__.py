"""The configuration of a run: files, overrides, their origins and their mistakes."""
