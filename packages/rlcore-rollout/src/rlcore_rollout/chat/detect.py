"""Which chat format a model folder speaks, by what its tokenizer's configuration says."""

from __future__ import annotations

from pathlib import Path

from rlcore_rollout.chat.tokenizer import read_tokenizer_config


def detect_chat_format(folder: Path) -> str | None:
    """The id of a chat format of this package, or None for a folder that is not known to speak one.

    ``rlcore_chat_format`` in ``tokenizer_config.json`` decides where it stands; builtin models write it. Formats of
    vision models are not among these.
    """
    config = read_tokenizer_config(Path(folder))
    if isinstance(named := config.get("rlcore_chat_format"), str):
        return named
    template: str = config["chat_template"]
    if "<|im_start|>" not in template or "<|vision_start|>" in template:
        return None
    if not str(config.get("tokenizer_class", "")).startswith("Qwen2Tokenizer"):  # Qwen3's as well
        return None
    entries = config.get("added_tokens_decoder") or {}
    added = {entry.get("content") for entry in entries.values() if isinstance(entry, dict)}
    if "<think>" in added or "<think>" in template:
        return "qwen3"
    return "qwen2.5"
