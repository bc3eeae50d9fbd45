"""The hooks of rlcore-control."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlcore.hookspecs import hookspec

if TYPE_CHECKING:
    from rlcore.specs import ActionModelSpec


@hookspec
def rlcore_action_models() -> Iterable[ActionModelSpec]:  # type: ignore[empty-body]
    """Register families of robot policies; ``model.path`` names a folder of one."""
