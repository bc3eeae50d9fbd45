"""Tool-call parsers: the calls in a text that a model wrote."""
