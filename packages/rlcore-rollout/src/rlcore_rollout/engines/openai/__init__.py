"""The engine for chat-completions endpoints."""
