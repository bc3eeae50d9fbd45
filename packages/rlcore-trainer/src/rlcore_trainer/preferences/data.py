"""Encode preferences as pairs of sequences that share their prompt, and hold out evaluation data."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, cast

from rlcore.abilities import PreferenceDataset
from rlcore.console.wording import counted
from rlcore.errors import DataError
from rlcore.types import Demonstration, LossMask, TokenIds

from rlcore_trainer.batching.conversations import ConversationEncoder
from rlcore_trainer.batching.sequence import TrainingSequence
from rlcore_trainer.config import PairsConfig
from rlcore_trainer.supervised.data import NO_LIMIT, Examples, described_format, divided

if TYPE_CHECKING:
    from pathlib import Path

    from rlcore.contracts import ChatFormat
    from rlcore.session.session import RunSession
    from rlcore.types import Message, Preference


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two answers to a prompt. The trained tokens are those that the assistant writes after the prompt."""

    chosen: TrainingSequence
    rejected: TrainingSequence
    margin: float = 0.0

    @property
    def sequences(self) -> tuple[TrainingSequence, TrainingSequence]:
        """Both sequences, the chosen one first."""
        return self.chosen, self.rejected

    @property
    def content(self) -> Hashable:
        """What two equal pairs have in common."""
        return self.chosen.content, self.rejected.content


def digest(pairs: Iterable[Pair]) -> str:
    """Return a hash of the tokens and images of pairs, to notice when the data has changed."""
    found = hashlib.sha256()
    for pair in pairs:
        for sequence in pair.sequences:
            found.update(len(sequence).to_bytes(8, "big") + sequence.token_ids.tobytes())
            found.update(sequence.loss_mask.tobytes() + "".join(span.sha256 for span in sequence.media).encode())
    return found.hexdigest()


class PairEncoder:
    """Encodes preferences with the chat format of a run."""

    def __init__(self, chat_format: ChatFormat) -> None:
        self._format, self._encoder = chat_format, ConversationEncoder(chat_format)

    def pair(self, one: Preference, name: str) -> Pair:
        """Return a preference as a pair.

        Raises:
            DataError: an image cannot be used, an answer of the preference ``name`` has no assistant message, or both
                answers are the same tokens.
            UserError: the preference has images, and the model sees none.
        """
        skipped = 0
        if any(message.role == "assistant" for message in one.prompt):
            prompt = Demonstration(messages=one.prompt, tools=one.tools, images=one.images)
            skipped = self._encoder.sequence(prompt, name).trained
        chosen, rejected = (self._answer(one, answer, skipped, name) for answer in (one.chosen, one.rejected))
        if chosen.content == rejected.content:
            raise DataError(
                f"both answers of {name} are the same tokens in the chat format",
                found=repr(one.chosen[0].text[:60]),
                where="the training data",
                fix="remove it",
            )
        return Pair(chosen=chosen, rejected=rejected, margin=one.margin)

    def _answer(self, one: Preference, answer: Sequence[Message], skipped: int, name: str) -> TrainingSequence:
        """Return an answer with its prompt, of which no token is trained.

        Tokens are appended only, so the first trained tokens are those of assistant messages in the prompt.
        """
        whole = Demonstration(messages=(*one.prompt, *answer), tools=one.tools, images=one.images)
        sequence = self._encoder.sequence(whole, name)
        mask = list(sequence.loss_mask)
        counts = accumulate(mask)
        mask = [trained and count > skipped for trained, count in zip(mask, counts, strict=True)]
        # Both answers follow the same tokens, which are computed once.
        return replace(sequence, loss_mask=LossMask(mask), prompt_length=mask.index(True), shares_any_prefix=False)


def scored(sequence: TrainingSequence) -> TrainingSequence:
    """Return a sequence for a reward model, which reads the state after the last token of the answer.

    Values are those of the state before a trained token, so one more token follows, which is the only trained one.
    """
    end = bytes(sequence.loss_mask.tobytes()).rfind(1) + 1
    ids = sequence.token_ids[:end]
    return replace(
        sequence,
        token_ids=TokenIds([*ids, ids[-1]]),
        loss_mask=LossMask([False] * end + [True]),
    )


def read_pairs(run: RunSession, config: PairsConfig, folder: Path, max_length: int | None) -> Examples[Pair]:
    """Encode the preferences of a run, and count those that do not fit.

    Raises:
        UserError: no training pair remains, a pair has images and the model sees none, or the warm-up is as long as the
            run.
        DataError: a pair is longer than the limit and ``on_long`` is ``raise``.
    """
    dataset = cast(PreferenceDataset, run.dataset)
    preferences = dataset.preferences("train")
    if any(message.images for one in preferences for message in one.prompt):
        run.check_image_input()
    encoder, limit = PairEncoder(described_format(run, folder)), config.max_tokens or max_length or NO_LIMIT
    train, notes = _fitting(preferences, encoder, config, limit, "training")
    unused, evaluation, told = len(preferences) - len(train), list[Pair](), list[str]()
    if run.config.evaluation.every:
        evaluation, told = _fitting(dataset.preferences("evaluation"), encoder, config, limit, "evaluation")
    return divided(run, config, train, evaluation, "pairs", unused, notes + told)


def _fitting(
    preferences: Sequence[Preference], encoder: PairEncoder, config: PairsConfig, limit: int, what: str
) -> tuple[list[Pair], list[str]]:
    """Return the pairs that fit, and sentences about the others."""
    found, long, unreadable, reason = list[Pair](), 0, 0, ""
    for place, one in enumerate(preferences, start=1):
        try:
            pair = encoder.pair(one, f"preference {place}")
        except DataError as error:
            unreadable, reason = unreadable + 1, reason or error.message
            continue
        if (length := max(map(len, pair.sequences))) <= limit:
            found.append(pair)
        elif config.on_long == "raise":
            raise DataError(
                f"preference {place} is longer than {counted(limit, 'token')}",
                found=f"{counted(length, 'token')}, beginning {one.prompt[0].text[:60] if one.prompt else ''!r}",
                where="trainer.on_long",
                fix="a larger trainer.max_tokens, or trainer.on_long=skip",
            )
        else:
            long += 1
    counts = {f"longer than {counted(limit, 'token')}": long, f"they cannot be encoded: {reason}": unreadable}
    told = [
        f"{count} of {counted(len(preferences), f'{what} pair')} skipped ({why})"
        for why, count in counts.items()
        if count
    ]
    return found, told
