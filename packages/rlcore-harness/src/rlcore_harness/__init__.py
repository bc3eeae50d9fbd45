"""Agents with a loop of their own: the server that answers their requests, and the environment that runs them."""
