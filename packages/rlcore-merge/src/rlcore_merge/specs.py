"""Specs of plugins for rlcore-merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlcore.specs import Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class MergerSpec(Spec):
    """A checkpoint layout; ``target(folder, request)`` returns a `rlcore_merge.checkpoint.Checkpoint`."""

    hook: ClassVar[str] = "rlcore_mergers"
    looked_for: str = ""
    """The files that identify the layout, for the error message about a folder without a known layout."""
