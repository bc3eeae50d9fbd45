"""What runs on the other side of a sandbox. Modules of this folder import the standard library only."""
