"""Asks a chat-completions endpoint."""
