"""The agent of the default recipe, and its tasks."""
