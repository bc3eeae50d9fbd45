"""What GUI environments of rlcore share: actions, answers, steps, and their data."""
