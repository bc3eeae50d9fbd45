"""The vLLM engine, which runs in a separate process and receives the policy's weights after every update."""
