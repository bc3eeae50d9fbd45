"""A config adapter of rlcore: the YAML files of Multimodal-Reinforce-CoT."""
