"""The hooks of rlcore-merge: what checkpoints can be merged."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.hookspecs import hookspec

if TYPE_CHECKING:
    from rlcore_merge.specs import MergerSpec


@hookspec
def rlcore_mergers() -> Iterable[MergerSpec]:  # type: ignore[empty-body]
    """Register layouts of checkpoints."""


@hookspec(firstresult=True)
def rlcore_checkpoint_layout(folder: Path) -> str | None:
    """Claim a folder: the id of its layout, or None. Looks at names only, and only in this folder."""
