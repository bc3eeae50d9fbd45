"""Configuration tables of the trainers. Does not import torch."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field, model_validator
from rlcore.config.schema import LARGEST, MetricChoice, Table

Positive = Annotated[int, Field(ge=1, le=LARGEST)]
NonNegative = Annotated[float, Field(ge=0)]
Rate = Annotated[float, Field(ge=0, le=1)]
LearningRate = Annotated[float, Field(gt=0)]
Passes = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8} pass(es)?$")]


class EarlyStop(MetricChoice):
    """``[trainer.early_stop]``: end the run when a metric stops improving, by default that of the best checkpoint."""

    patience: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    """Measurements without an improvement after which the run ends; 0 never ends it early."""
    least_change: NonNegative = 0.0
    """Smallest change of the metric that counts as an improvement."""


class TrainerTable(Table):
    """The keys of ``[trainer]`` shared by all trainers with an optimiser."""

    RENAMED = {"warmup_steps": "lr_warmup_steps", "warmup_ratio": "lr_warmup_ratio"}

    learning_rate: LearningRate = 1e-6
    """Peak learning rate of AdamW."""
    lr_warmup_steps: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    """Number of steps over which the learning rate increases from zero to its peak."""
    lr_warmup_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The same as a fraction of all steps, rounded up; used if ``lr_warmup_steps`` is 0."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate schedule after the warm-up: constant, or a decay that reaches zero right after the last step."""
    weight_decay: NonNegative = 0.0
    """AdamW weight decay of matrices; biases and norms are not decayed."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """AdamW coefficients for the running averages of the gradient and its square."""
    max_gradient_norm: Annotated[float, Field(gt=0)] = 1.0
    """Maximum gradient norm; larger gradients are scaled down to it."""
    max_tokens_per_batch: Positive = 4096
    """Maximum number of tokens per micro-batch. It affects memory and speed, but not the gradient. A prompt is computed
    once for all of its responses that fit into the same micro-batch."""
    early_stop: EarlyStop = EarlyStop()
    """When to end the run before its last step."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass instead of storing them."""

    def warmup_of(self, steps: int) -> int:
        """Return the number of warm-up steps of a run of ``steps`` steps."""
        return self.lr_warmup_steps or share_of(self.lr_warmup_ratio, steps)


class PolicyGradientConfig(TrainerTable):
    """``[trainer]``: training length, optimiser and batch settings."""

    steps: Positive | Passes = 100
    """Number of training steps, or of passes over the training tasks, such as ``"3 passes"``. Each step is one rollout
    and its updates."""
    tasks_per_step: Positive = 16
    """Tasks per step; each task is sampled ``rollout.group_size`` times."""
    shuffle: bool = True
    """Shuffle the training tasks in each pass; false keeps the order of the dataset."""
    updates_per_rollout: Positive = 1
    """Optimiser steps per pass over a rollout, each on a share of the trajectories; 1 is strictly on-policy."""
    epochs: Positive = 1
    """Passes over each rollout; more than one is off-policy."""
    token_evidence: Rate = 1.0
    """Share of the trajectories whose values are stored for each trained token, in ``evidence/`` of the run: 1 stores
    all, 0 none. A token takes at most 12 bytes."""
    sync_check_every: Annotated[int, Field(ge=0, le=LARGEST)] = 1
    """Number of steps between checks that the engine has the policy's weights; 0 disables the check."""

    def steps_of(self, tasks: int) -> int:
        """Return the number of steps of a run with this number of training tasks."""
        if isinstance(self.steps, int):
            return self.steps
        return math.ceil(int(self.steps.split()[0]) * tasks / self.tasks_per_step)


def share_of(ratio: float, steps: int) -> int:
    """Return a fraction of all steps, rounded up."""
    # Round first: 0.1 * 30 is slightly larger than 3 in floating point.
    return math.ceil(round(ratio * steps, 6))


class CurriculumConfig(Table):
    """``[curriculum]``: skip prompts that the policy always or never solves."""

    success: tuple[Rate, Rate] | None = None
    """The lowest and highest success rate of a prompt that is sampled in each pass over the data, such as
    ``[0.1, 0.9]``. The rate is that of the prompt's last group. None samples all prompts."""
    rest: Annotated[int, Field(ge=1, le=LARGEST)] = 1
    """Number of passes over the data in which a prompt outside this range is skipped. If fewer prompts are left than a
    step needs, all are sampled again."""

    @model_validator(mode="after")
    def _check_range(self) -> CurriculumConfig:
        if self.success is not None and self.success[0] > self.success[1]:
            raise ValueError("success needs the lowest rate first, such as [0.1, 0.9]")
        return self


class WarmupConfig(Table):
    """``[warmup]``: a short supervised phase on the dataset's demonstrations before reinforcement learning."""

    FIXED = frozenset({"steps", "learning_rate", "demonstrations_per_step", "episodes"})

    steps: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    """Number of supervised updates; 0 disables the warm-up."""
    learning_rate: LearningRate = 1e-3
    """Peak learning rate of AdamW; it increases over the first tenth of the updates, then decays to zero on a
    cosine."""
    demonstrations_per_step: Positive = 32
    """Demonstrations per update: conversations, or steps of recorded episodes for a control policy."""
    episodes: Positive = 64
    """Largest number of recorded episodes that a control policy imitates."""


class OfflineConfig(TrainerTable):
    """The keys of ``[trainer]`` of trainers that make passes over stored examples."""

    epochs: Positive = 1
    """Passes over the training examples; each pass is shuffled differently."""
    steps: Positive | None = None
    """Number of optimiser updates; None derives it from ``epochs``."""
    learning_rate: LearningRate = 1e-5
    """Peak learning rate of AdamW."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Learning rate schedule after the warm-up: constant, or a decay that reaches zero right after the last step."""
    max_tokens: Annotated[int, Field(ge=2, le=LARGEST)] | None = None
    """Maximum length of a conversation in tokens; None uses the model's limit."""
    held_out: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    """Number of training examples to hold out for evaluation if the dataset has no evaluation examples."""

    @property
    @abstractmethod
    def per_step(self) -> int:
        """The number of examples of an update."""

    @property
    def tries_tasks(self) -> bool:
        """Whether evaluation tasks are tried in the environment."""
        return False


class SupervisedConfig(OfflineConfig):
    """``[trainer]`` for ``sft``: training length, optimiser, batch and data settings."""

    conversations_per_step: Positive = 16
    """Conversations per update, independent of the micro-batch size."""
    on_long: Literal["skip", "cut", "raise"] = "skip"
    """Action for longer conversations: ``skip`` them, ``cut`` them to the limit, or ``raise`` an error. Skipped and cut
    conversations are counted."""
    demonstrations: Annotated[int, Field(ge=1, le=1_000_000)] = 2048
    """Number of demonstrations to request from a dataset that has no conversations."""
    rollouts: bool = False
    """Also run the dataset's evaluation tasks in the environment at each evaluation, as configured in
    ``[evaluation]``."""

    @property
    def per_step(self) -> int:
        """The number of conversations of an update."""
        return self.conversations_per_step

    @property
    def tries_tasks(self) -> bool:
        """Whether evaluation tasks are tried in the environment."""
        return self.rollouts


class PairsConfig(OfflineConfig):
    """The keys of ``[trainer]`` of trainers on pairs of answers."""

    pairs_per_step: Positive = 16
    """Pairs per update, independent of the micro-batch size."""
    on_long: Literal["skip", "raise"] = "skip"
    """Action for a pair with a conversation longer than ``max_tokens``: ``skip`` and count it, or ``raise`` an
    error."""

    @property
    def per_step(self) -> int:
        """The number of pairs of an update."""
        return self.pairs_per_step


class PreferenceTrainerConfig(PairsConfig):
    """``[trainer]`` for ``preference``: training length, optimiser, batch and data settings."""

    learning_rate: LearningRate = 1e-6
    """Peak learning rate of AdamW."""
    rollouts: bool = False
    """Also run the dataset's evaluation tasks in the environment at each evaluation, as configured in
    ``[evaluation]``."""

    @property
    def tries_tasks(self) -> bool:
        """Whether evaluation tasks are tried in the environment."""
        return self.rollouts


class RewardModelTrainerConfig(PairsConfig):
    """``[trainer]`` for ``reward-model``: training length, optimiser, batch and data settings."""

    center: NonNegative = 0.0
    """Weight of the squared sum of the scores of a pair, which keeps scores near zero (Eisenstein et al. 2023, arXiv
    2312.09244, eq. 2); 0.01 is usual."""
