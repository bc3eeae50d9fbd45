"""A resolved run while it is in progress."""
