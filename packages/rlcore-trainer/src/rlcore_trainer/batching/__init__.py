"""Convert scored trajectories to packed micro-batches."""
