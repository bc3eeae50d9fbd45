"""The tensor names that transformers writes for a model, where they differ from the names of its modules.

Trainers save the names of the modules. For the models below, ``save_pretrained`` translates them to the names of the
published checkpoints, which all versions of transformers and vLLM can read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_QWEN2_VL = (("model.language_model.", "model."), ("model.visual.", "visual."))
_PREFIXES = {"qwen2_vl": _QWEN2_VL, "qwen2_5_vl": _QWEN2_VL}
"""By ``model_type``: prefixes of module names and of published names."""


def published(names: Iterable[str], config: Mapping[str, Any]) -> dict[str, str]:
    """The published name for each name in either spelling. Names without a translation are unchanged."""
    kind = config.get("model_type")
    prefixes = _PREFIXES.get(kind, ()) if isinstance(kind, str) else ()
    return {name: _renamed(name, prefixes) for name in names}


def _renamed(name: str, prefixes: Iterable[tuple[str, str]]) -> str:
    for own, other in prefixes:
        if name.startswith(own):
            return other + name.removeprefix(own)
    return name
