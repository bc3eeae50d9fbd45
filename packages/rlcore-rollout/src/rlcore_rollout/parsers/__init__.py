"""Tool-call parsers, which extract calls from model output."""
