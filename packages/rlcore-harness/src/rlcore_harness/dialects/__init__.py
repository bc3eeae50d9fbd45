"""The APIs in which agents ask the policy: chat completions, responses, and Anthropic's messages."""
