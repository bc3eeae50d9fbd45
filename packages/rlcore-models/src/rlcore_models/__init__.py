"""What sampling and training compute alike: loading a model, adapters, images, built-in tiny models."""
