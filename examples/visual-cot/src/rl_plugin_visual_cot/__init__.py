"""Questions about pictures, answered with a chain of thought."""
