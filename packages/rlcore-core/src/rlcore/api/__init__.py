"""rlcore from Python: `train`, `evaluate` and `load_run`, for scripts and notebooks."""
