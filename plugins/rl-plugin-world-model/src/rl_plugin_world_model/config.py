"""Configuration of the phases. Does not import torch."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field
from rlcore.config.schema import LARGEST, Table

Positive = Annotated[int, Field(ge=1, le=LARGEST)]
Size = Annotated[int, Field(ge=1, le=65_536)]
NonNegative = Annotated[float, Field(ge=0)]
Rate = Annotated[float, Field(gt=0)]
Cameras = Annotated[list[str], Field(min_length=1)]


class NetworkConfig(Table):
    """``[model.builder]``: the networks of the phases. Checkpoints contain it, so later phases read it from there."""

    prediction: Literal["tokens", "latents"] = "tokens"
    """What the world model predicts of each patch of the next picture: a token of a vector-quantised codebook
    (cross-entropy), or the coordinates in a fixed orthogonal basis (squared error)."""
    patch: Literal[2, 4, 8, 16] = 4
    """Width and height of a patch, in pixels."""
    codes: Annotated[int, Field(ge=2, le=4096)] = 32
    """Number of tokens in the codebook, or of coordinates of a patch."""
    channels: Size = 24
    """Channels of the convolutions."""
    memory: Size = 96
    """Size of the memory, the hidden state of a GRU."""
    cameras: Cameras = ["head_rgb", "left_wrist_rgb"]
    """Pictures that the world model sees, by their keys in the observation."""
    target: str = "head_rgb"
    """The picture whose next frame the world model predicts."""
    explorer_cameras: Cameras = ["left_wrist_rgb"]
    """Pictures that the explorer sees."""


class TermTable(Table):
    """``[[trainer.terms]]``: one term of the explorer's reward."""

    id: str
    """The term: an id from ``rlcore plugins list``, or ``module:attribute``."""
    weight: float = 1.0
    """Weight in the sum; 0 only logs the term."""


class PhaseConfig(Table):
    """``[trainer]``: what all phases share."""

    episodes: Positive = 100
    """Number of episodes to collect, in all environments and processes together."""
    steps_per_episode: Positive = 50
    """Steps after which an episode is truncated."""
    num_envs: Annotated[int, Field(ge=1, le=4096)] = 1
    """Number of environments in each process."""
    vector: Literal["auto", "sync", "async"] = "auto"
    """Whether the environments of a process run in it or in processes of their own; ``auto`` uses what is faster."""
    batch_size: Annotated[int, Field(ge=1, le=4096)] = 8
    """Episodes in an update of the world model."""
    bptt_length: Positive = 16
    """Steps over which gradients flow back through the memory. The memory itself is carried on to the next steps."""
    memory_backprop: bool = True
    """Whether gradients flow through the memory at all."""
    passes: Positive = 2
    """Passes of the world model over a batch after each round of episodes; a round is one episode per environment."""
    learning_rate: Rate = 1e-3
    """Peak learning rate of AdamW for the world model."""
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """Learning rate over the episodes of the run: constant, or a decay to ``final_learning_rate``."""
    final_learning_rate: NonNegative = 1e-6
    """Learning rate at the end of the schedule."""
    weight_decay: NonNegative = 1e-4
    """AdamW weight decay of matrices."""
    max_gradient_norm: Rate = 1.0
    """Maximum gradient norm."""
    buffer_episodes: Positive = 500
    """Number of episodes that are kept for training. The oldest are removed first."""
    buffer_steps: Positive = 10_000
    """Number of steps that are kept for training, in whole episodes."""
    held_out: Size = 4
    """Number of episodes on which the world model is evaluated and never trained."""
    evaluate_every: Positive = 10
    """Episodes between evaluations on the held-out episodes."""
    log_every: Positive = 1
    """Episodes between logged metrics; checkpoints log them too. ``episode_metrics.jsonl`` has a line for every
    round."""
    sample_every: Annotated[int, Field(ge=0, le=LARGEST)] = 10
    """Episodes between pictures in ``samples/`` and episodes in ``rollouts/``, where the last round is always shown; 0
    writes none."""
    video_every: Annotated[int, Field(ge=0, le=LARGEST)] = 10
    """Episodes between videos in ``videos/``, where the last round is always shown; 0 writes none."""
    console_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    """Messages of the phase below this level are not printed. Metrics of steps have the level INFO. Processes other
    than the main one print only warnings and errors of their own."""
    file_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "DEBUG"
    """Messages of the phase below this level are not written to ``phase.log``."""

    def rate(self, peak: float, done: int) -> float:
        """Return the learning rate of a round that begins after this number of episodes."""
        if self.schedule == "constant":
            return peak
        progress = min(1.0, done / self.episodes)
        share = 1 - progress if self.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
        low = min(self.final_learning_rate, peak)
        return low + (peak - low) * share

    @property
    def steps(self) -> int:
        """The last step of the run: steps of a phase are counted in episodes."""
        return self.episodes


class TeacherConfig(PhaseConfig):
    """``[trainer]`` of phase 1: the world model, trained on random actions."""

    action_scale: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the range of actions from which random actions are drawn."""


class ExplorerConfig(PhaseConfig):
    """The explorer of the phases 2 and 3."""

    terms: Annotated[list[TermTable], Field(min_length=1)] = [TermTable(id="wm_error")]
    """Terms of the reward, each logged. The reward is their weighted sum."""
    explorer_learning_rate: Rate = 1e-3
    """Learning rate of AdamW for the explorer, with the same schedule."""
    epochs: Positive = 4
    """Passes over the episodes of a round."""
    value_weight: NonNegative = 0.5
    """Weight of the value loss."""
    clip_value: Annotated[float, Field(gt=0)] | None = 0.2
    """Largest change of a value in an update; None does not limit it."""
    entropy_weight: NonNegative = 0.01
    """Weight of the entropy bonus."""
    entropy_floor: float = -1.0
    """Entropy in nats per dimension of the action, below which a penalty raises it."""
    distillation_weight: NonNegative = 0.1
    """Weight of the squared difference between the memory of the explorer and that of the world model."""
    reward_clip: Annotated[float, Field(gt=0)] = 10.0
    """Limit of the absolute reward after it was divided by its running standard deviation."""


class StudentConfig(ExplorerConfig):
    """``[trainer]`` of phase 2: the explorer; the world model is frozen unless ``train_world_model`` is set."""

    teacher: str
    """A checkpoint of phase 1 or 3: ``…/checkpoint-N``."""
    train_world_model: bool = False
    """Whether the world model keeps learning from the explorer's episodes."""


class AdversarialConfig(ExplorerConfig):
    """``[trainer]`` of phase 3: the world model and the explorer in turn."""

    teacher: str | None = None
    """A checkpoint of phase 1 or 3 with the world model to begin with; None begins with a new one."""
    student: str | None = None
    """A checkpoint of phase 2 or 3 with the explorer to begin with; None begins with a new one."""
    explorer_updates: Positive = 1
    """Updates of the explorer for each round; ``passes`` are those of the world model."""
    warmup_steps: Annotated[int, Field(ge=0, le=LARGEST)] = 1000
    """Steps of the environments, all together, that are collected with random actions before the explorer learns."""
    collapse_error: NonNegative = 0.1
    """Error of the world model, relative to copying the last frame, below which the explorer is not updated. The
    published guard sets the reward to 0 below an absolute error of 0.01."""
    probe: Size = 4
    """Number of episodes of the fixed probe set, whose actions are random and held for several steps."""
