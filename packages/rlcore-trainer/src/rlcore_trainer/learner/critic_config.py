"""The ``[critic]`` table. Does not import torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from rlcore.config.schema import LARGEST, Table
from rlcore.errors import UserError

from rlcore_trainer.config import LearningRate, NonNegative

HEAD_WEIGHTS = {"weight", "bias"}
"""Checkpoint keys of a critic that is a value head on the policy."""


class CriticConfig(Table):
    """``[critic]``: the value model, used by advantages such as ``gae``."""

    model: str | None = None
    """``copy`` is a separate model initialised from the policy, ``head`` a value head on the policy's layers; any other
    value is a model folder or hub id. None disables the critic."""
    learning_rate: LearningRate = 1e-5
    """Constant AdamW learning rate of a separate critic; a value head uses the policy's learning rate."""
    clip: NonNegative | None = 0.5
    """Clip range of a value around its value before the updates; None disables clipping."""
    coefficient: NonNegative = 0.1
    """Weight of the value loss relative to the policy loss; only for a value head."""
    warmup_steps: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    """Number of initial steps in which only the critic is trained."""

    @property
    def shares_trunk(self) -> bool:
        """Whether the critic is a head on the policy's layers, which its loss then trains, too."""
        return self.model == "head"


def another_critic(asked: str, *, was_head: bool, found: str = "a separate model") -> UserError:
    """Return the error for a checkpoint whose critic is of a different kind."""
    return UserError(
        f"critic.model={asked} does not match the critic of this checkpoint",
        found="a value head on the policy" if was_head else found,
        where="critic.model",
        fix="critic.model=head" if was_head else "the critic.model that the checkpoint was written with",
    )
