"""The table of the supervised trainer. Imports no torch: a configuration is checked before anything loads."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field
from rlcore.config.schema import Table

from rlcore_trainer.config import LearningRate, NonNegative, Positive


class SupervisedConfig(Table):
    """``[trainer]`` of ``sft``: how long, and how much at a time, conversations are imitated."""

    epochs: Positive = 1
    """Passes over the training conversations, each in an order of its own."""
    steps: Positive | None = None
    """Optimiser updates; None makes as many as the epochs take."""
    conversations_per_step: Positive = 16
    """Conversations of one update, however many go through the model at once."""
    learning_rate: LearningRate = 1e-5
    """AdamW's step size at its highest."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps over which the learning rate rises from zero."""
    warmup_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The same as a share of all steps, rounded up."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """What the learning rate does after warming up: stays, or falls to zero right after the last step."""
    weight_decay: NonNegative = 0.0
    """AdamW's decay of matrices; biases and norms never decay."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """AdamW's averaging of the gradient and of its square."""
    max_gradient_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients are scaled down to this norm."""
    max_tokens_per_batch: Positive = 4096
    """Tokens that go through the model at once. Changes memory and speed, never the gradient."""
    max_tokens: Annotated[int, Field(ge=2)] | None = None
    """Tokens of the longest conversation that is taken whole; None is the model's own limit."""
    on_long: Literal["skip", "cut", "raise"] = "skip"
    """A longer one is left out, keeps its first tokens, or stops the run. The first two are counted."""
    demonstrations: Positive = 2048
    """How many are asked of a dataset that makes demonstrations and has no conversations of its own."""
    held_out: Annotated[int, Field(ge=0)] = 0
    """Training conversations that are kept for the evaluation instead, where the dataset has none for it."""
    rollouts: bool = False
    """Each evaluation also tries the dataset's evaluation tasks in the environment, as ``[evaluation]`` says."""
    gradient_checkpointing: bool = False
    """Compute activations a second time in the backward pass instead of keeping them."""

    def warmup_of(self, steps: int) -> int:
        """The warm-up of a run of so many steps."""
        # 0.1 times 30 is a little more than 3 in floating point.
        return self.warmup_steps or math.ceil(round(self.warmup_ratio * steps, 6))
