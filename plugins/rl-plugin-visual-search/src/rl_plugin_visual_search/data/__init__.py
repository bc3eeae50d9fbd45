"""Questions from files: rows, conversations and choices as tasks."""
