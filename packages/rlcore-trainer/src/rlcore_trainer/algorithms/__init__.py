"""Advantage estimators and policy losses, one per file."""

from rlcore_trainer.algorithms.configured import advantage, loss
from rlcore_trainer.algorithms.interface import (
    Advantage,
    AdvantageInputs,
    AdvantageOutput,
    AdvantageTraits,
    Loss,
    LossInputs,
    LossOutput,
    LossTraits,
)

__all__ = [
    "Advantage",
    "AdvantageInputs",
    "AdvantageOutput",
    "AdvantageTraits",
    "Loss",
    "LossInputs",
    "LossOutput",
    "LossTraits",
    "advantage",
    "loss",
]
