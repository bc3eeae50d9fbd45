"""Training for rlcore: advantages, losses, packed log-probabilities, the policy-gradient trainer, checkpoints."""
