"""The configuration table of the supervised trainer. Does not import torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from rlcore.config.schema import LARGEST, Table

from rlcore_trainer.config import EarlyStop, LearningRate, NonNegative, Positive, share_of


class SupervisedConfig(Table):
    """``[trainer]`` for ``sft``: training length, optimiser, batch and data settings."""

    RENAMED = {"warmup_steps": "lr_warmup_steps", "warmup_ratio": "lr_warmup_ratio"}

    epochs: Positive = 1
    """Passes over the training conversations; each pass is shuffled differently."""
    steps: Positive | None = None
    """Number of optimiser updates; None derives it from ``epochs``."""
    conversations_per_step: Positive = 16
    """Conversations per update, independent of the micro-batch size."""
    learning_rate: LearningRate = 1e-5
    """Peak learning rate of AdamW."""
    lr_warmup_steps: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    """Number of steps over which the learning rate increases from zero to its peak."""
    lr_warmup_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The same as a fraction of all steps, rounded up."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Learning rate schedule after the warm-up: constant, or a decay that reaches zero right after the last step."""
    weight_decay: NonNegative = 0.0
    """AdamW weight decay of matrices; biases and norms are not decayed."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """AdamW coefficients for the running averages of the gradient and its square."""
    max_gradient_norm: Annotated[float, Field(gt=0)] = 1.0
    """Maximum gradient norm; larger gradients are scaled down to it."""
    max_tokens_per_batch: Positive = 4096
    """Maximum number of tokens per micro-batch. It affects memory and speed, but not the gradient."""
    max_tokens: Annotated[int, Field(ge=2, le=LARGEST)] | None = None
    """Maximum conversation length in tokens; None uses the model's limit."""
    on_long: Literal["skip", "cut", "raise"] = "skip"
    """Action for longer conversations: ``skip`` them, ``cut`` them to the limit, or ``raise`` an error. Skipped and cut
    conversations are counted."""
    demonstrations: Annotated[int, Field(ge=1, le=1_000_000)] = 2048
    """Number of demonstrations to request from a dataset that has no conversations."""
    held_out: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    """Number of training conversations to hold out for evaluation if the dataset has no evaluation conversations."""
    rollouts: bool = False
    """Also run the dataset's evaluation tasks in the environment at each evaluation, as configured in
    ``[evaluation]``."""
    early_stop: EarlyStop = EarlyStop()
    """When to end the run before its last step."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass instead of storing them."""

    def warmup_of(self, steps: int) -> int:
        """Return the number of warm-up steps for a run of ``steps`` steps."""
        return self.lr_warmup_steps or share_of(self.lr_warmup_ratio, steps)
