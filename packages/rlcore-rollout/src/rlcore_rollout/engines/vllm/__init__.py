"""vLLM as an engine: a process of its own that takes the policy's weights after every update."""
