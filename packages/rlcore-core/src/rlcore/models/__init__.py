"""Model folders, adapters and weights on disk. Does not import torch."""
