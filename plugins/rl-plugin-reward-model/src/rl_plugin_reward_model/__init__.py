"""A reward that scores episodes with a reward model."""
