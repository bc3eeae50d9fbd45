"""The learner: the policy of a run, its optimiser, and what is computed with them in all processes."""
