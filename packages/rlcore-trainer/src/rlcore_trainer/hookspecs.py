"""Hook specifications of rlcore-trainer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlcore.hookspecs import hookspec

if TYPE_CHECKING:
    from rlcore.specs import AlgorithmSpec, PolicySpec, StrategySpec, TrainerSpec


@hookspec
def rlcore_trainers() -> Iterable[TrainerSpec]:  # type: ignore[empty-body]
    """Register trainers. Called once, when a trainer is first requested."""


@hookspec
def rlcore_algorithms() -> Iterable[AlgorithmSpec]:  # type: ignore[empty-body]
    """Register advantage estimators and policy losses, distinguished by ``part``."""


@hookspec
def rlcore_strategies() -> Iterable[StrategySpec]:  # type: ignore[empty-body]
    """Register strategies."""


@hookspec
def rlcore_policies() -> Iterable[PolicySpec]:  # type: ignore[empty-body]
    """Register policies of environments without messages."""
