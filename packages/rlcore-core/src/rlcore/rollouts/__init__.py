"""Stored rollouts: records of groups, their index, conditions on its rows, and the texts of tokens."""
