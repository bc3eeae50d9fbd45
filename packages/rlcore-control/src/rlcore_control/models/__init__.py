"""Models that turn observations into chunks of actions."""
