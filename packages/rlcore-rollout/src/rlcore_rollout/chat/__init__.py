"""Chat formats: messages to tokens and back."""
