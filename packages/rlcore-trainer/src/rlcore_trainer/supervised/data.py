"""Encode conversations as training sequences, hold out evaluation data, and assign sequences to steps."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from rlcore.abilities import ConversationDataset, DemonstrationDataset, Described
from rlcore.console.wording import counted
from rlcore.errors import DataError, UserError
from rlcore.types import derive_seed

from rlcore_trainer.batching.conversations import ConversationEncoder, cut
from rlcore_trainer.batching.data_order import Cursor
from rlcore_trainer.batching.packing import TrainingSequence
from rlcore_trainer.config import OfflineConfig, SupervisedConfig

if TYPE_CHECKING:
    from pathlib import Path

    from rlcore.contracts import ChatFormat, Dataset
    from rlcore.session.session import RunSession
    from rlcore.types import Demonstration

    from rlcore_trainer.policy.policy import TokenPolicy


class HasContent(Protocol):
    """An example that can be compared with others."""

    @property
    def content(self) -> Hashable:
        """What two equal examples have in common."""
        ...


Example = TypeVar("Example", bound=HasContent)
NO_LIMIT = 2**31 - 1
"""Length limit if neither the run nor the model sets one."""


@dataclass(slots=True)
class Encoded:
    """Encoded conversations, and counts of those that did not fit."""

    sequences: list[TrainingSequence] = field(default_factory=list)
    skipped: int = 0
    """Skipped because they exceed the limit."""
    cut: int = 0
    """Truncated to the limit."""
    untrained: int = 0
    """Skipped because no assistant tokens remain after truncation."""
    unreadable: int = 0
    """Skipped because an image cannot be used."""
    reason: str = ""
    """The problem of the first unreadable image."""

    @property
    def unused(self) -> int:
        """Number of skipped conversations."""
        return self.skipped + self.untrained + self.unreadable

    def sentence(self, what: str, limit: int) -> str:
        """Return the counts as a sentence; empty if all are 0."""
        counts = {
            f"skipped (longer than {counted(limit, 'token')})": self.skipped,
            f"cut to {counted(limit, 'token')}": self.cut,
            "skipped (no assistant tokens)": self.untrained,
            f"skipped (an image cannot be used: {self.reason})": self.unreadable,
        }
        total = len(self.sequences) + self.unused
        told = [f"{count} {why}" for why, count in counts.items() if count]
        return f"{counted(total, f'{what} conversation')}: {', '.join(told)}" if told else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples(Generic[Example]):
    """The data and the length of a run."""

    train: list[Example]
    evaluation: list[Example]
    unused: int
    """Number of training examples that were skipped."""
    steps: int
    """Total number of optimiser updates."""
    warmup_steps: int
    """Number of learning rate warm-up steps."""
    notes: list[str]
    """Sentences about examples that did not fit."""


def encode(
    conversations: Iterable[Demonstration], chat_format: ChatFormat, config: SupervisedConfig, *, limit: int
) -> Encoded:
    """Encode conversations with the run's chat format. The trained tokens are those that a rollout would sample.

    A conversation with an image that cannot be used is skipped and counted. A truncation never cuts an image in two.

    Raises:
        DataError: a conversation has no assistant message, or is longer than ``limit`` and ``on_long`` is ``raise``.
        UserError: a conversation has images, and the model sees none.
    """
    found, encoder = Encoded(), ConversationEncoder(chat_format)
    for place, one in enumerate(conversations, start=1):
        try:
            encoder.fitted(one)
        except DataError as error:
            found.unreadable += 1
            found.reason = found.reason or f"{error.message}; conversation {place} has {error.found}"
            continue
        sequence = encoder.sequence(one, f"conversation {place}")
        if len(sequence) > limit:
            if config.on_long == "raise":
                raise DataError(
                    f"conversation {place} is longer than {counted(limit, 'token')}",
                    found=f"{counted(len(sequence), 'token')}, beginning {one.messages[0].text[:60]!r}",
                    where="trainer.on_long",
                    fix="a larger trainer.max_tokens, trainer.on_long=skip, or trainer.on_long=cut",
                )
            if config.on_long == "skip":
                found.skipped += 1
                continue
            sequence = cut(sequence, limit)
            found.cut += bool(sequence.trained)
        if sequence.trained:
            found.sequences.append(sequence)
        else:
            found.untrained += 1
    return found


def training_conversations(dataset: Dataset, config: SupervisedConfig, *, seed: int) -> Sequence[Demonstration]:
    """Return the dataset's training conversations, or without any the configured number of demonstrations."""
    found = dataset.conversations("train") if isinstance(dataset, ConversationDataset) else ()
    if found or not isinstance(dataset, DemonstrationDataset):
        return found
    return list(dataset.demonstrations(config.demonstrations, seed=derive_seed(seed, "supervised")))


def evaluation_conversations(dataset: Dataset) -> Sequence[Demonstration]:
    """Return the dataset's evaluation conversations; empty if it has none."""
    return dataset.conversations("evaluation") if isinstance(dataset, ConversationDataset) else ()


def read_conversations(run: RunSession, config: SupervisedConfig, policy: TokenPolicy) -> Examples[TrainingSequence]:
    """Encode the conversations of a run, and count those that do not fit.

    Raises:
        UserError: no training conversation remains, a conversation has images and the model sees none, or the warm-up
            is as long as the run.
    """
    conversations = training_conversations(run.dataset, config, seed=run.config.seed)
    if any(message.images for one in conversations for message in one.messages):
        run.check_image_input()
    chat_format = described_format(run, policy.folder)
    limit = config.max_tokens or policy.max_length or NO_LIMIT
    encoded = encode(conversations, chat_format, config, limit=limit)
    evaluation, notes = list[TrainingSequence](), [encoded.sentence("training", limit)]
    if run.config.evaluation.every:
        held = encode(evaluation_conversations(run.dataset), chat_format, config, limit=limit)
        evaluation, notes = held.sequences, [*notes, held.sentence("evaluation", limit)]
    notes = [line for line in notes if line]
    return divided(run, config, encoded.sequences, evaluation, "conversations", encoded.unused, notes)


def described_format(run: RunSession, folder: Path) -> ChatFormat:
    """Return the chat format of a model, and print its description."""
    chat_format = run.chat_format(folder)
    if isinstance(chat_format, Described):
        for line in chat_format.description():
            run.say(line)
    return chat_format


def divided(
    run: RunSession,
    config: OfflineConfig,
    train: list[Example],
    evaluation: list[Example],
    what: str,
    unused: int,
    notes: list[str],
) -> Examples[Example]:
    """Hold out training examples if there are none for the evaluation, and find the length of a run.

    Args:
        run: the run
        config: its trainer's
        train: the training examples
        evaluation: those that the data has for the evaluation
        what: what they are, such as ``conversations``
        unused: the number of training examples that did not fit
        notes: sentences about them

    Raises:
        UserError: no training example remains, or the warm-up is as long as the run.
    """
    if run.config.evaluation.every:
        if evaluation and (count := shared(train, evaluation)):
            notes = [*notes, f"{count} evaluation {what} are also in the training data, so their loss is biased"]
        elif not evaluation and config.held_out:
            train, evaluation = hold_out(train, config.held_out, seed=run.config.seed)
    if not train:
        found = "; ".join(notes) or f"no {what} in the data"
        cut = ", trainer.on_long=cut" if isinstance(config, SupervisedConfig) else ""
        fix = f"a larger trainer.max_tokens{cut}, or other data"
        raise UserError(f"no training {what} remain", found=found, where="trainer.max_tokens", fix=fix)
    steps, warmup_steps = length_of(run, config, len(train))
    return Examples(
        train=train, evaluation=evaluation, unused=unused, steps=steps, warmup_steps=warmup_steps, notes=notes
    )


def length_of(run: RunSession, config: OfflineConfig, examples: int) -> tuple[int, int]:
    """Return the number of steps of a run with this number of training examples, and that of its warm-up.

    Raises:
        UserError: the warm-up is as long as the run.
    """
    steps = config.steps or config.epochs * steps_of_epoch(examples, config.per_step)
    warmup_steps = config.warmup_of(steps)
    if warmup_steps >= steps:
        raise UserError(
            f"the warm-up of {counted(warmup_steps, 'step')} is as long as the run",
            found=f"{counted(steps, 'step')} in total",
            where=run.resolved.origin(("trainer", "lr_warmup_steps")),
            fix="a shorter warm-up, more epochs, or fewer examples per step",
        )
    return steps, warmup_steps


def hold_out(examples: Sequence[Example], count: int, *, seed: int) -> tuple[list[Example], list[Example]]:
    """Split off ``count`` examples selected by the seed. Duplicates of held-out examples are dropped from both parts.

    Raises:
        DataError: no training example would remain.
    """
    chosen = sorted(range(len(examples)), key=lambda i: derive_seed(seed, "held out", i))[:count]
    held = {examples[i].content: examples[i] for i in sorted(chosen)}
    rest = [example for example in examples if example.content not in held]
    if not rest:
        raise DataError(
            f"trainer.held_out={count} leaves no training data",
            found=f"{counted(len(examples), 'example')}, including duplicates",
            where="trainer.held_out",
            fix="a smaller trainer.held_out, or more data",
        )
    return rest, list(held.values())


def shared(train: Sequence[Example], evaluation: Sequence[Example]) -> int:
    """Return the number of evaluation examples that are also in the training data."""
    known = {example.content for example in train}
    return sum(example.content in known for example in evaluation)


def steps_of_epoch(examples: int, per_step: int) -> int:
    """Return the number of steps in an epoch; the last step may be smaller."""
    return -(-examples // per_step)


def next_batch(cursor: Cursor, *, examples: int, per_step: int, seed: int) -> tuple[list[int], Cursor]:
    """Return the examples of a step and the cursor after it. The last step of an epoch may be smaller."""
    end = cursor.position + per_step
    batch = _order(examples, seed, cursor.epoch)[cursor.position : end]
    after = Cursor(epoch=cursor.epoch + 1) if end >= examples else Cursor(epoch=cursor.epoch, position=end)
    return list(batch), after


@lru_cache(maxsize=2)
def _order(examples: int, seed: int, epoch: int) -> tuple[int, ...]:
    order = list(range(examples))
    random.Random(derive_seed(seed, "supervised order", epoch)).shuffle(order)
    return tuple(order)
