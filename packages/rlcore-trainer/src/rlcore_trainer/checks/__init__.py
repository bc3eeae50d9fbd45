"""Checks of the configuration and estimates before a run. They do not import torch."""
