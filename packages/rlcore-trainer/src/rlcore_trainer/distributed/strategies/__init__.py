"""Strategies that distribute an update over processes and devices."""
