"""How many tokens a run will compute together, estimated from its data before a model is loaded.

The number decides the memory of activations. The budget of a micro-batch is only its limit: an update with few
conversations or rollouts does not fill it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from rlcore.abilities import ConversationDataset, DemonstrationDataset
from rlcore.errors import RlcoreError
from rlcore.session.memory import own_tokens, prompt_lengths

from rlcore_trainer.config import PolicyGradientConfig, SupervisedConfig, WarmupConfig

if TYPE_CHECKING:
    from rlcore.session.session import RunSession
    from rlcore.types import Demonstration

SAMPLED = 128
"""The number of conversations whose lengths are measured."""


@dataclass(frozen=True, slots=True)
class ExpectedTokens:
    """The tokens of the largest micro-batches of a run."""

    first: int
    """In the first micro-batch of an update, before there are gradients."""
    further: int
    """In a later micro-batch; 0 if every update has only one."""

    @classmethod
    def of(cls, update: float, budget: int) -> ExpectedTokens:
        """Return the micro-batches of an update with this many tokens. All of them but the last are full."""
        return cls(int(min(update, budget)), int(min(max(0, update - budget), budget)))


def expected_tokens(run: RunSession) -> ExpectedTokens:
    """Return the largest micro-batches of the updates of a run. Without readable data, they are full."""
    trainer, warmup = run.options("trainer"), run.resolved.options.get("warmup")
    budget: int = trainer.max_tokens_per_batch
    try:
        if isinstance(trainer, SupervisedConfig):
            update = _of_conversations(run, trainer.conversations_per_step, trainer)
        elif isinstance(trainer, PolicyGradientConfig):
            update = _of_rollouts(run, trainer)
            if isinstance(warmup, WarmupConfig) and warmup.steps:
                update = max(update, _of_conversations(run, warmup.demonstrations_per_step, steps=warmup.steps))
        else:
            update = math.inf
    except RlcoreError:
        update = math.inf  # reading the data reports it
    return ExpectedTokens.of(update, budget)


def _of_rollouts(run: RunSession, trainer: PolicyGradientConfig) -> float:
    """The most tokens of an update on rollouts. Siblings share their prompt, and may reach the limit of new tokens."""
    group_size, prompts = run.config.rollout.group_size, prompt_lengths(run)
    tasks = math.ceil(trainer.tasks_per_step / trainer.updates_per_rollout)
    own = own_tokens(run)
    if context := run.config.rollout.max_context_tokens:
        own = min(own, max(1, context - prompts.mean - prompts.visual))
    return prompts.of(tasks) + tasks * group_size * own


def _of_conversations(
    run: RunSession, per_step: int, trainer: SupervisedConfig | None = None, *, steps: int = 0
) -> float:
    """The tokens of the largest of all updates, from mean and deviation of the lengths; infinity if unknown."""
    limit = (trainer.max_tokens if trainer is not None else None) or math.inf
    found = [min(length, limit) for length in _lengths(run, supervised=trainer is not None)]
    if not found:
        return math.inf
    if trainer is not None:
        steps = trainer.steps or 1000
    # The largest of n normal numbers is about sqrt(2 ln n) deviations above the mean.
    spread = pstdev(found) * math.sqrt(per_step) * math.sqrt(2 * math.log(max(2, steps)))
    return min(per_step * fmean(found) + spread, per_step * max(found))


def _lengths(run: RunSession, *, supervised: bool) -> list[int]:
    """The lengths in tokens of some conversations of the run, without those that cannot be encoded."""
    folder, dataset = run.model_here(), run.dataset
    conversations: Sequence[Demonstration] = ()
    if supervised and isinstance(dataset, ConversationDataset):
        everything = dataset.conversations("train")
        conversations = everything[:: max(1, len(everything) // SAMPLED)]
    if not conversations and isinstance(dataset, DemonstrationDataset):
        conversations = list(dataset.demonstrations(SAMPLED, seed=run.config.seed))
    if folder is None or any(message.images for one in conversations for message in one.messages):
        return []
    chat_format = run.chat_format(folder)
    return [len(chat_format.conversation(one.messages, one.tools)[0]) for one in conversations[:SAMPLED]]


__all__ = ["ExpectedTokens", "expected_tokens"]
