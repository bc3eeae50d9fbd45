"""Seeds as tasks, and demonstrations of experts."""
