"""The tables of the policy-gradient trainer. Imports no torch: a configuration is checked before anything loads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from rlcore.config.schema import Table

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0)]
LearningRate = Annotated[float, Field(gt=0)]

ESTIMATOR_ALIASES = {"kl": "k1", "k2": "mse", "low_var_kl": "k3"}


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
    """Tokens that go through the model at once. Changes memory and speed, never the gradient."""
    sync_check_every: Annotated[int, Field(ge=0)] = 1
    """Steps between checks that the engine holds the policy's weights; 0 trusts it."""
    gradient_checkpointing: bool = False
    """Compute activations a second time in the backward pass instead of keeping them."""


class KlConfig(Table):
    """``algorithm.kl``: the pull towards the reference policy."""

    estimator: Annotated[
        Literal["k1", "abs", "mse", "k3"],
        BeforeValidator(lambda name: ESTIMATOR_ALIASES.get(name, name) if isinstance(name, str) else name),
    ] = "k3"
    """``k1``, ``abs``, ``mse`` (also ``k2``) or ``k3`` (also ``low_var_kl``)."""
    coefficient: NonNegative = 0.0
    """Weight of the term; 0 switches it off, and with it the reference policy."""
    target: Literal["loss"] = "loss"
    """Where the term goes: into the loss."""
    reference: str | None = None
    """Folder of the reference policy; None takes the policy as it is when reinforcement learning starts."""


class AlgorithmConfig(Table):
    """``[algorithm]``: what is a good trajectory, and how the policy is pushed towards it."""

    advantage: str = "grpo"
    """The advantage estimator."""
    normalise_by_std: bool = True
    """Divide a group's advantages by its standard deviation."""
    loss: str = "clip"
    """The policy loss."""
    clip_low: Annotated[float, Field(ge=0, le=1)] = 0.2
    """How far below 1 the probability ratio may push."""
    clip_high: NonNegative = 0.2
    """How far above 1 the probability ratio may push."""
    aggregation: Literal["token-mean", "sequence-mean"] = "token-mean"
    """Whether every token or every trajectory of the global batch weighs the same."""
    kl: KlConfig = KlConfig()
    """The pull towards the reference policy."""
    entropy: float = 0.0
    """Weight of the entropy bonus; positive keeps the policy broad."""
    shuffle_rewards: bool = False
    """Control experiment: permute the rewards among a step's trajectories, so that nothing can be learnt."""


class WarmupConfig(Table):
    """``[warmup]``: a short supervised phase on the dataset's demonstrations, before reinforcement learning."""

    steps: Annotated[int, Field(ge=0)] = 0
    """Supervised updates; 0 leaves the phase out."""
    learning_rate: LearningRate = 1e-3
    """AdamW's step size; it rises over the first tenth and falls to zero on a cosine."""
    demonstrations_per_step: Positive = 32
    """Demonstrations of one update."""


class SingleProcessConfig(Table):
    """``[strategy]`` of ``single``: nothing to choose."""
