"""Training on pairs of a chosen and a rejected answer: preference losses, and reward models."""
