"""The vision-language models that rlcore supports."""

FAMILIES = {"qwen2_vl": "Qwen2-VL", "qwen2_5_vl": "Qwen2.5-VL", "qwen3_vl": "Qwen3-VL"}
"""Name of each supported family by the ``model_type`` of its configuration."""
