"""The hook implementations of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from rlcore.hookspecs import hookimpl
from rlcore.specs import RewardSpec


@hookimpl
def rlcore_rewards() -> Iterable[RewardSpec]:
    """The rewards."""
    return []
