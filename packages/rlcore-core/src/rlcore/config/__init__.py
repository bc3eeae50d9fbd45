"""Run configuration: files, overrides, the origin of each value, and validation errors."""
