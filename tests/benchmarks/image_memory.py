"""Growth of memory over 200 updates, each with 4 pictures that no other update has.

The model is that of ``shared-image``. Kept pictures would add 200 MB as pixels, or 30 MB as encoded bytes.
"""

from __future__ import annotations

import gc
import random

import torch
from comparison import Comparison
from rlcore.types import LossMask, MediaSpan, TokenIds, media_hash
from rlcore_trainer.batching.packing import TrainingSequence
from rlcore_trainer.config import SupervisedConfig
from rlcore_trainer.distributed.ranks import Ranks
from rlcore_trainer.distributed.strategies.single import SingleProcess, SingleProcessConfig
from rlcore_trainer.learner.learner import Learner, offer_training
from rlcore_trainer.learner.trained_policy import TrainedPolicy
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from rlcore_trainer.policy.forward import PackedForward
from shared_image import PLACEHOLDER, PROCESSOR, build, picture
from trajectory_memory import anonymous_memory

VERSIONS = ("rlcore-trainer", "torch", "transformers")
UPDATES, WARM_UPS, PICTURES = 200, 20, 4
MOST_MB = 8.0
"""Noise of the allocator."""


def sequence(seed: int) -> TrainingSequence:
    """A picture of 112 x 112 pixels, a question and an answer."""
    data, rng = picture(4, 4, seed), random.Random(seed)
    name = media_hash(data)
    ids = [1, *[PLACEHOLDER] * 16, *rng.choices(range(500), k=12)]
    span = MediaSpan(sha256=name, offset=1, length=16, rows=4, columns=4)
    mask = LossMask([False] * 25 + [True] * 4)
    return TrainingSequence(token_ids=TokenIds(ids), loss_mask=mask, media=(span,), images={name: data})


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """A budget for the growth."""
    policy = CausalLanguageModel(build(), forward=PackedForward(PROCESSOR))
    strategy = SingleProcess(SingleProcessConfig())
    ranks = Ranks(strategy.processes)
    offer_training(ranks, TrainedPolicy(policy, strategy, SupervisedConfig()))
    learner = Learner(ranks, 4096)
    before = 0
    for step in range(WARM_UPS + (2 if smoke else UPDATES)):
        if step == WARM_UPS:
            gc.collect()
            before = anonymous_memory()
        batch = [sequence(PICTURES * step + i) for i in range(PICTURES)]
        learner.imitate(batch, learning_rate=1e-4, max_gradient_norm=1.0)
    gc.collect()
    growth = max(anonymous_memory() - before, 2**16) / 2**20
    assert torch.isfinite(torch.tensor(growth))
    return [Comparison(name="growth", ours=lambda: growth, peer=MOST_MB, floor=1.0, unit="MB")]
