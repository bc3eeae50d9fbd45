"""Losses of preferences: a prompt with a chosen and a rejected answer."""
