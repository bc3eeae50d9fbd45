"""A page and a report of rlcore runs."""
