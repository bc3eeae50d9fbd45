"""Detects the chat format of a model folder from its tokenizer configuration."""

from __future__ import annotations

from pathlib import Path

from rlcore_rollout.chat.renderer import VISION_START
from rlcore_rollout.chat.tokenizer import read_tokenizer_config


def detect_chat_format(folder: Path) -> str | None:
    """Return the id of a built-in chat format, or None if the format is unknown.

    ``rlcore_chat_format`` in ``tokenizer_config.json`` takes precedence; built-in models write it. A template without a
    format of its own is rendered as it is.
    """
    config = read_tokenizer_config(Path(folder))
    if isinstance(named := config.get("rlcore_chat_format"), str):
        return named if ":" not in named else None  # a model folder must not import code
    template: str = config["chat_template"]
    if not template:
        return None
    qwen = str(config.get("tokenizer_class", "")).startswith("Qwen2Tokenizer")  # Qwen3's as well
    if "<|im_start|>" not in template or not qwen or "<function=" in template:  # Qwen3-Coder's calls are not JSON
        return "template"
    if VISION_START in template:
        return _vision_format(template)
    entries = config.get("added_tokens_decoder")
    tokens = entries.values() if isinstance(entries, dict) else ()
    added = {str(entry.get("content")) for entry in tokens if isinstance(entry, dict)}
    if "<think>" in added or "<think>" in template:
        return "qwen3"
    return "qwen2.5"


def _vision_format(template: str) -> str:
    if "<think>" in template:  # models that always or sometimes think, whose prompts end within a thought
        return "template"
    default = "You are a helpful assistant." in template
    return "qwen3-vl" if "<tool_call>" in template and not default else "qwen2.5-vl"
