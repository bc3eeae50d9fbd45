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

from rlcore.abilities import ConversationDataset, DemonstrationDataset, PreferenceDataset
from rlcore.errors import RlcoreError
from rlcore.session.memory import own_tokens, prompt_lengths

from rlcore_trainer.config import PairsConfig, PolicyGradientConfig, SupervisedConfig, WarmupConfig

if TYPE_CHECKING:
    from rlcore.session.session import RunSession
    from rlcore.types import Demonstration, Message, ToolSchema

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
        if isinstance(trainer, PairsConfig):
            update = _largest(_of_pairs(run), trainer.pairs_per_step, trainer.steps, trainer.max_tokens)
        elif isinstance(trainer, SupervisedConfig):
            lengths = _lengths(run, supervised=True)
            update = _largest(lengths, trainer.conversations_per_step, trainer.steps, trainer.max_tokens)
        elif isinstance(trainer, PolicyGradientConfig):
            update = _of_rollouts(run, trainer)
            if isinstance(warmup, WarmupConfig) and warmup.steps:
                lengths = _lengths(run, supervised=False)
                update = max(update, _largest(lengths, warmup.demonstrations_per_step, warmup.steps, None))
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


def _largest(lengths: Sequence[int], per_step: int, steps: int | None, limit: int | None) -> float:
    """The tokens of the largest of all updates, from mean and deviation of the lengths; infinity if unknown."""
    found = [min(length, limit or math.inf) for length in lengths]
    if not found:
        return math.inf
    # The largest of n normal numbers is about sqrt(2 ln n) deviations above the mean.
    spread = pstdev(found) * math.sqrt(per_step) * math.sqrt(2 * math.log(max(2, steps or 1000)))
    return min(per_step * fmean(found) + spread, per_step * max(found))


def _of_pairs(run: RunSession) -> list[int]:
    """The tokens of some pairs of answers, whose prompt is computed once."""
    folder, dataset = run.model_here(), run.dataset
    everything = dataset.preferences("train") if isinstance(dataset, PreferenceDataset) else ()
    preferences = everything[:: max(1, len(everything) // SAMPLED)][:SAMPLED]
    if folder is None or any(one.images for one in preferences):
        return []
    chat_format = run.chat_format(folder)

    def length(*messages: Message, tools: Sequence[ToolSchema]) -> int:
        return len(chat_format.conversation(messages, tools)[0])

    return [
        length(*one.prompt, *one.chosen, tools=one.tools)
        + length(*one.prompt, *one.rejected, tools=one.tools)
        - len(chat_format.prompt(one.prompt, one.tools))
        for one in preferences
    ]


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
