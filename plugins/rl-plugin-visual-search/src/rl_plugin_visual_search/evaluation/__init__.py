"""Results of evaluations."""
