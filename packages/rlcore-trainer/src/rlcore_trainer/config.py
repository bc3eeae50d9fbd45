"""The tables of the policy-gradient trainer. Imports no torch: a configuration is checked before anything loads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from rlcore.config.schema import Table

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0)]
LearningRate = Annotated[float, Field(gt=0)]


class PolicyGradientConfig(Table):
    """``[trainer]``: how much is learnt from how many rollouts."""

    steps: Positive = 100
    """Steps of rollout and update."""
    tasks_per_step: Positive = 16
    """Tasks of one step; each is tried ``rollout.group_size`` times."""
    learning_rate: LearningRate = 1e-6
    """AdamW's step size at its highest."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps over which the learning rate rises from zero."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What the learning rate does after warming up: stays, or falls to zero at the last step."""
    weight_decay: NonNegative = 0.0
    """AdamW's decay of matrices; biases and norms never decay."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """AdamW's averaging of the gradient and of its square."""
    max_gradient_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients are scaled down to this norm."""
    updates_per_rollout: Positive = 1
    """Optimiser steps per pass over a rollout, each on its share of the trajectories; 1 is strictly on policy."""
    epochs: Positive = 1
    """Passes over each rollout; more than one is off policy."""
    max_tokens_per_batch: Positive = 4096
    """Tokens that go through the model at once: memory and speed, never the gradient. A prompt is computed once for as
    many of its responses as fit with it."""
    sync_check_every: Annotated[int, Field(ge=0)] = 1
    """Steps between checks that the engine holds the policy's weights; 0 trusts it."""
    gradient_checkpointing: bool = False
    """Compute activations a second time in the backward pass instead of keeping them."""


class WarmupConfig(Table):
    """``[warmup]``: a short supervised phase on the dataset's demonstrations, before reinforcement learning."""

    steps: Annotated[int, Field(ge=0)] = 0
    """Supervised updates; 0 leaves the phase out."""
    learning_rate: LearningRate = 1e-3
    """AdamW's step size; it rises over the first tenth and falls to zero on a cosine."""
    demonstrations_per_step: Positive = 32
    """Demonstrations of one update."""


class CriticConfig(Table):
    """``[critic]``: the value model of an advantage that needs one, such as ``gae``."""

    model: str | None = None
    """``copy`` is a model of its own that starts from the policy, ``head`` one output more on the policy's own layers;
    or a model's folder or hub id. None has no critic."""
    learning_rate: LearningRate = 1e-5
    """AdamW's step size of a model of its own, the same in every step; a head learns with the policy's."""
    clip: NonNegative | None = 0.5
    """How far a value may move from what it was before the updates; None lets it."""
    coefficient: NonNegative = 0.1
    """Weight of the value loss beside the policy loss; only for a head."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps in which only the critic learns."""


class SingleProcessConfig(Table):
    """``[strategy]`` of ``single``: nothing to choose."""

    processes: Literal[1] | None = None
    """One. ``strategy.id=ddp`` takes more."""


class DataParallelConfig(Table):
    """``[strategy]`` of ``ddp``: several processes, each with the whole model and a share of the work."""

    processes: Positive | None = None
    """How many. None takes those that ``torchrun`` or ``accelerate launch`` has started, else one for each GPU."""
