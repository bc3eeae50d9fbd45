"""Word problems with a calculator, an environment for rlcore."""
