"""Who shows or stores a run's numbers. Each tracker is imported when it is asked for."""
