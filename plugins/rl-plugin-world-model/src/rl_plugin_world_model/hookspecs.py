"""The hook of this plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlcore.hookspecs import hookspec

if TYPE_CHECKING:
    from rlcore.specs import Spec


@hookspec
def rlcore_reward_terms() -> Iterable[Spec]:  # type: ignore[empty-body]
    """Register terms of a reward for each step, which trainers of explorers compute; each target is a function."""
