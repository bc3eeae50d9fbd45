"""Environments of OpenEnv and NeMo Gym servers, and rlcore environments as OpenEnv servers."""
