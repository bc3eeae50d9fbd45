"""``rlcore plan``: a simulator of runs on clusters. Does not import torch."""
