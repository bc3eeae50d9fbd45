"""An advantage estimator: the reward minus the mean of its group, clipped."""
