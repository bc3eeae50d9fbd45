"""Trackers, which show or store the metrics of a run. Each one is imported when it is selected."""
