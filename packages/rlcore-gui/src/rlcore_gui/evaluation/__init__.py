"""Evaluation of GUI agents: metrics with intervals, a results file, and a picture sheet with taps."""
