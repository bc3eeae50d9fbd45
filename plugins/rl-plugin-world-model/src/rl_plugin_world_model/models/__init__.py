"""The networks of the world model and the explorer."""
