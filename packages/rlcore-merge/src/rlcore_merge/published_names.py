"""The tensor names that transformers writes for a model, where they differ from the names of its modules.

Trainers save the names of the modules. For the models below, ``save_pretrained`` translates them to the names of the
published checkpoints, which all versions of transformers and vLLM can read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_QWEN2_VL = (("model.language_model.", "model."), ("model.visual.", "visual."))
_PREFIXES = {"qwen2_vl": _QWEN2_VL, "qwen2_5_vl": _QWEN2_VL}
"""By ``model_type``: prefixes of module names and of published names."""

_SAME = frozenset({"qwen3_vl", "qwen3_vl_moe", "gpt_oss", "llama4"})
"""Model types whose published names are those of the modules, although they look like `_MODULES`."""
_MODULES = re.compile(r"model\.(language_model|vision_tower)\.|.*\.experts\.(gate_up_proj|down_proj)$")
"""Names of modules that ``save_pretrained`` translates for most models: parts of them, and experts in one tensor."""


def names_note(names: Iterable[str], config: Mapping[str, Any]) -> list[str]:
    """A note if tensors keep names that the published checkpoints of the model may not have."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind in _SAME or kind in _PREFIXES:
        return []
    found = next(filter(_MODULES.match, sorted(names)), None)
    if found is None:
        return []
    return [
        f"the tensors keep the names of modules, such as {found}: transformers of the version that trained the model "
        f"reads them, but other versions and vLLM may need the published names of {kind}; load and save the output "
        "with transformers to get them"
    ]


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
