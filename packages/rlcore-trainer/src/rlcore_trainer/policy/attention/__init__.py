"""Attention of packed rows: which keys each token sees, with prompts that sequences share."""
