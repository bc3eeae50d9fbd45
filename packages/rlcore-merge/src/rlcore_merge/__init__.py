"""Merge sharded and adapter checkpoints of any trainer into one Hugging Face folder.

::

    from rlcore_merge import merge

    merge("checkpoints/global_step_100/actor", out="merged", dtype="bf16")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcore_merge.comparison import Comparison, compare
    from rlcore_merge.merging import Merged, merge

__all__ = ["Comparison", "Merged", "compare", "merge"]

_MODULES = {"merge": "merging", "Merged": "merging", "compare": "comparison", "Comparison": "comparison"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'rlcore_merge' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"rlcore_merge.{_MODULES[name]}"), name)
