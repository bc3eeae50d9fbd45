"""A dialect of rlcore: the YAML files of Multimodal-Reinforce-CoT."""
