"""Evaluation: accuracy by type with intervals, the use of tools, a results file, and notes on turns."""
