"""An engine that samples with transformers, one prompt at a time."""
