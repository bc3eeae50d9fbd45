"""rlcore-compat: translate the configuration of verl, TRL and accelerate; base classes for other config adapters."""
