"""The hooks of rlcore-merge, which register checkpoint layouts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.hookspecs import hookspec

if TYPE_CHECKING:
    from rlcore_merge.specs import MergerSpec


@hookspec
def rlcore_mergers() -> Iterable[MergerSpec]:  # type: ignore[empty-body]
    """Register checkpoint layouts."""


@hookspec(firstresult=True)
def rlcore_checkpoint_layout(folder: Path) -> str | None:
    """Return the id of the layout of a folder or file, or None. Look at its name and file names in it only."""
