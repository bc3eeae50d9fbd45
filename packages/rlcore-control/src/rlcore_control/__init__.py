"""Policies that control an environment with continuous actions."""
