"""The vision-language models that rlcore supports, recognised from ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcore.errors import UserError

FAMILIES = {"qwen2_vl": "Qwen2-VL", "qwen2_5_vl": "Qwen2.5-VL", "qwen3_vl": "Qwen3-VL"}
"""Name of each supported family by the ``model_type`` of its configuration."""


def sees_images(config: Mapping[str, Any], folder: Path) -> bool:
    """Return whether a model is a vision-language model.

    Args:
        config: the contents of ``config.json``
        folder: its folder, for the error

    Raises:
        UserError: it is one of an unsupported family.
    """
    if not isinstance(config.get("vision_config"), dict):
        return False
    kind, listed = str(config.get("model_type")), config.get("architectures")
    if kind not in FAMILIES:
        name = listed[0] if isinstance(listed, list) and listed else kind
        raise UserError(
            "a vision-language model must be a Qwen2-VL, Qwen2.5-VL or Qwen3-VL",
            found=str(name)[:80],
            where=str(folder / "config.json"),
            fix="choose a model of these families, or a language model without images",
        )
    return True
