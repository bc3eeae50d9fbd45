"""The trained model: loading, forward passes and adapters."""
