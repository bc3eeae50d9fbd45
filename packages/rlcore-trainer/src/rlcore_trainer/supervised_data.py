"""From conversations to sequences: what is trained on, what is held out, and what comes in which step."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from rlcore.errors import DataError
from rlcore.types import derive_seed
from rlcore.wording import counted

from rlcore_trainer.packing import Sequence
from rlcore_trainer.supervised_config import SupervisedConfig

if TYPE_CHECKING:
    from rlcore.contracts import ChatFormat, Dataset
    from rlcore.types import Demonstration


@dataclass(slots=True)
class Encoded:
    """Conversations as tokens, and what became of those that did not fit."""

    sequences: list[Sequence] = field(default_factory=list)
    skipped: int = 0
    """Longer than the limit and left out."""
    cut: int = 0
    """Longer than the limit and without their end."""
    untrained: int = 0
    """Left out because nothing in them (or in what the cut left) is the assistant's."""

    def sentence(self, what: str, limit: int) -> str:
        """What was counted, in words; empty when nothing was."""
        counts = {
            f"left out, longer than {counted(limit, 'token')}": self.skipped,
            f"cut to {counted(limit, 'token')}": self.cut,
            "left out, nothing of the assistant in them": self.untrained,
        }
        total = len(self.sequences) + self.skipped + self.untrained
        told = [f"{count} {why}" for why, count in counts.items() if count]
        return f"of {counted(total, f'{what} conversation')} {', '.join(told)}" if told else ""


def encode(
    conversations: Iterable[Demonstration], chat_format: ChatFormat, config: SupervisedConfig, *, limit: int
) -> Encoded:
    """Every conversation by the run's renderer, trained exactly where a rollout of it would have been sampled.

    Raises:
        DataError: one is longer than ``limit`` and ``on_long`` says so.
    """
    found = Encoded()
    for place, one in enumerate(conversations, start=1):
        ids, mask = chat_format.conversation(one.messages, one.tools)
        if len(ids) > limit:
            if config.on_long == "raise":
                raise DataError(
                    f"conversation {place} is longer than {counted(limit, 'token')}",
                    found=f"{counted(len(ids), 'token')}, beginning {one.messages[0].text[:60]!r}",
                    where="trainer.on_long",
                    mend="a larger trainer.max_tokens, trainer.on_long=skip, or trainer.on_long=cut",
                )
            if config.on_long == "skip":
                found.skipped += 1
                continue
            ids, mask = ids[:limit], mask[:limit]
            found.cut += any(mask)
        if any(mask):
            # 5 bytes a token: a list of Python's own numbers takes eight times that.
            found.sequences.append(Sequence(token_ids=array("i", ids), loss_mask=cast(SequenceOf[bool], bytes(mask))))
        else:
            found.untrained += 1
    return found


def training_conversations(dataset: Dataset, config: SupervisedConfig, *, seed: int) -> SequenceOf[Demonstration]:
    """All of the dataset's own, or as many demonstrations as the configuration asks for."""
    own = getattr(dataset, "conversations", None)
    if own is not None:
        return cast("SequenceOf[Demonstration]", own("train"))
    return list(dataset.demonstrations(config.demonstrations, seed=derive_seed(seed, "supervised")))


def evaluation_conversations(dataset: Dataset) -> SequenceOf[Demonstration]:
    """The dataset's own; empty where it has none."""
    own = getattr(dataset, "conversations", None)
    return cast("SequenceOf[Demonstration]", own("evaluation")) if own is not None else ()


def hold_out(sequences: SequenceOf[Sequence], count: int, *, seed: int) -> tuple[list[Sequence], list[Sequence]]:
    """Training and held-out sequences: ``count`` chosen by the seed, whose repetitions are in neither.

    Raises:
        DataError: nothing would be left to train on.
    """
    chosen = sorted(range(len(sequences)), key=lambda i: derive_seed(seed, "held out", i))[:count]
    held = {_content(sequences[i]): sequences[i] for i in sorted(chosen)}
    rest = [sequence for sequence in sequences if _content(sequence) not in held]
    if not rest:
        raise DataError(
            f"trainer.held_out={count} leaves nothing to train on",
            found=f"{counted(len(sequences), 'conversation')}, repetitions included",
            where="trainer.held_out",
            mend="a smaller trainer.held_out, or more data",
        )
    return rest, list(held.values())


def shared(train: SequenceOf[Sequence], evaluation: SequenceOf[Sequence]) -> int:
    """How many evaluation sequences are trained on as well."""
    known = {_content(sequence) for sequence in train}
    return sum(_content(sequence) in known for sequence in evaluation)


def steps_of_epoch(conversations: int, per_step: int) -> int:
    """Steps that take every conversation once; the last may be smaller."""
    return -(-conversations // per_step)


def batch_of_step(step: int, *, conversations: int, per_step: int, seed: int) -> tuple[int, list[int]]:
    """The epoch, from 0, and the conversations of step 1, 2, …: a function of nothing but its arguments."""
    epoch, place = divmod(step - 1, steps_of_epoch(conversations, per_step))
    return epoch, list(_order(conversations, seed, epoch)[place * per_step : (place + 1) * per_step])


@lru_cache(maxsize=2)
def _order(conversations: int, seed: int, epoch: int) -> tuple[int, ...]:
    order = list(range(conversations))
    random.Random(derive_seed(seed, "supervised order", epoch)).shuffle(order)
    return tuple(order)


def _content(sequence: Sequence) -> tuple[bytes, bytes]:
    return array("i", sequence.token_ids).tobytes(), bytes(sequence.loss_mask)
