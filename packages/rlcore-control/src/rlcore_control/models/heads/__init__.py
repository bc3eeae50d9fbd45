"""Action heads: distributions over normalised chunks of actions, given features."""
