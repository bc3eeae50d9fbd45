"""The generators and verifiers of reasoning-gym."""
