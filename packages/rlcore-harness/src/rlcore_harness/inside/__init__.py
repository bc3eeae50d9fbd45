"""What runs in the agent's interpreter. Python 3.8 and the standard library only."""
