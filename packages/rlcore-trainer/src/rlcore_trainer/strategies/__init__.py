"""How an update is spread over processes and devices."""
