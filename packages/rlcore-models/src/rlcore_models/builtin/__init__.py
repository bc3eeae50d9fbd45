"""Built-in models, created when a run starts."""
