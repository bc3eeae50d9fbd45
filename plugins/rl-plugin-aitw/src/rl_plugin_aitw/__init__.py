"""Android in the Wild (AITW): phone screens for rlcore."""
