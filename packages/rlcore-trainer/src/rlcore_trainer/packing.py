"""Sequences to packed micro-batches: one row of concatenated sequences, no padding, shared prompts once.

Axes: ``N`` the tokens of a packed row, ``M`` its trained tokens.

The log-probability of the token at position t comes from the hidden state at t-1. So what a row carries is, for every
trained token, the row position before it; the last trained token of a sequence and everything after it need not be
fed at all.

Sequences that begin with the same prompt are a family: the row holds the prompt once and then the response of each,
with position ids that go on from the prompt's end. The prompt's last hidden state predicts the first token of every
response.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import torch
from torch import Tensor

from rlcore_trainer.dealing import ALONE, Place, dealt, fair_size
from rlcore_trainer.packed_layout import PackedLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """One sequence to train on, length T."""

    token_ids: SequenceOf[int]
    loss_mask: SequenceOf[bool]
    """True on the tokens to train."""
    logprobs: SequenceOf[float] = ()
    """The engine's log-probabilities, length T; may be absent."""
    prompt_length: int = 0
    """How many tokens at its beginning it may share with others: those before the first sampled one."""
    advantage: float | SequenceOf[float] = 0.0
    """Of all its trained tokens, or of each."""
    weight: float = 0.0
    """Weight of each of its trained tokens in the loss, see `rlcore_trainer.losses.token_weights`."""

    @property
    def trained(self) -> int:
        """How many tokens are trained."""
        return sum(self.loss_mask)

    @property
    def fed(self) -> int:
        """How many tokens must be fed: all before the last trained one."""
        return max((t for t, trained in enumerate(self.loss_mask) if trained), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """What goes through the model at once. The trained tokens of all sequences stand one after another."""

    token_ids_1N: Tensor
    position_ids_1N: Tensor
    layout: PackedLayout
    before_M: Tensor
    """Row position of the hidden state that predicts each trained token."""
    targets_M: Tensor
    sequence_M: Tensor
    """Index, among all the sequences that were packed, of the one that each trained token belongs to."""
    advantages_M: Tensor
    weights_M: Tensor
    engine_logprobs_M: Tensor
    """The engine's log-probabilities, NaN where it gave none."""


@dataclass(frozen=True, slots=True)
class _Family:
    """Sequences with one prompt, or a single sequence without."""

    members: tuple[int, ...]
    prompt: int
    """How many tokens of the prompt are fed; 0 where nothing is shared."""
    responses: tuple[int, ...]
    """How many tokens each member feeds after the prompt."""

    @property
    def fed(self) -> int:
        return self.prompt + sum(self.responses)


def plan(lengths: SequenceOf[int], max_tokens: int) -> list[list[int]]:
    """What goes together: longest first, up to ``max_tokens`` a micro-batch.

    Neighbours have similar lengths, which is what attention on a CPU likes. What is longer than the budget gets a
    micro-batch of its own. Ties stay in the given order, so the plan depends on nothing but its arguments.
    """
    batches: list[list[int]] = []
    room = 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if not batches or lengths[i] > room:
            batches.append([])
            room = max_tokens
        batches[-1].append(i)
        room -= lengths[i]
    return batches


def pack(
    sequences: SequenceOf[Sequence], max_tokens: int, device: torch.device, place: Place = ALONE
) -> list[MicroBatch]:
    """Micro-batches of at most ``max_tokens`` fed tokens that hold every trained token exactly once.

    Sequences without a trained token are left out. A family stays together as long as it fits; one that does not is
    cut into several, each with the prompt. Only a single sequence longer than ``max_tokens`` exceeds them, alone.

    Several processes get different micro-batches, which together hold every trained token exactly once; they are made
    small enough for everybody to have work, and one that gets none gets an empty list.

    Raises:
        ValueError: the first token of a sequence is to be trained, which nothing predicts; or a sequence has another
            number of advantages than of trained tokens.
    """
    for sequence in sequences:
        if sequence.loss_mask and sequence.loss_mask[0]:
            raise ValueError("the first token of a sequence cannot be trained: nothing stands before it")
        if isinstance(sequence.advantage, SequenceOf) and len(sequence.advantage) != sequence.trained:
            raise ValueError(f"{len(sequence.advantage)} advantages for {sequence.trained} trained tokens")
    whole = _families(sequences)
    if place.count > 1:
        max_tokens = fair_size([family.fed for family in whole], max_tokens, place)
    families = [part for family in whole for part in _cut(family, max_tokens)]
    batches = plan([family.fed for family in families], max_tokens)
    mine = dealt([sum(families[j].fed for j in batch) for batch in batches], place)
    return [_pack(sequences, [families[j] for j in batches[i]], device) for i in mine]


def _families(sequences: SequenceOf[Sequence]) -> list[_Family]:
    """In the order of their first members."""
    by_prompt: dict[object, list[int]] = {}
    fed = [sequence.fed for sequence in sequences]
    for i, sequence in enumerate(sequences):
        if fed[i]:
            by_prompt.setdefault(tuple(sequence.token_ids[: sequence.prompt_length]) or i, []).append(i)
    families = []
    for members in by_prompt.values():
        # A prompt may itself hold trained tokens, so that not every member needs all of it.
        prompt = max(min(fed[i], sequences[i].prompt_length) for i in members) if len(members) > 1 else 0
        families.append(_Family(tuple(members), prompt, tuple(max(0, fed[i] - prompt) for i in members)))
    return families


def _cut(family: _Family, max_tokens: int) -> list[_Family]:
    """The family, or parts of it that fit; a part of a single member has nothing to share."""
    parts: list[list[int]] = []
    room = 0
    for k, response in enumerate(family.responses):
        if not parts or response > room:
            parts.append([])
            room = max_tokens - family.prompt
        parts[-1].append(k)
        room -= response
    if len(parts) == 1:
        return [family]
    cut = []
    for part in parts:
        members, responses = (tuple(of[k] for k in part) for of in (family.members, family.responses))
        alone = len(part) == 1 and responses[0] > 0
        cut.append(
            _Family(members, 0, (family.prompt + responses[0],))
            if alone
            else _Family(members, family.prompt, responses)
        )
    return cut


def _pack(sequences: SequenceOf[Sequence], families: SequenceOf[_Family], device: torch.device) -> MicroBatch:
    token_ids: list[int] = []
    positions: list[int] = []
    before: list[int] = []
    targets: list[int] = []
    owners: list[int] = []
    advantages: list[float] = []
    weights: list[float] = []
    engine: list[float] = []
    stretches: list[int | tuple[int, list[int]]] = []
    for family in families:
        start, prompt = len(token_ids), family.prompt
        token_ids += sequences[family.members[0]].token_ids[:prompt]
        positions += range(prompt)
        for i, response in zip(family.members, family.responses, strict=True):
            sequence, shift = sequences[i], len(token_ids) - prompt
            token_ids += sequence.token_ids[prompt : prompt + response]
            positions += range(prompt, prompt + response)
            trained = [t for t, is_trained in enumerate(sequence.loss_mask) if is_trained]
            before += [(start if t <= prompt else shift) + t - 1 for t in trained]
            targets += [sequence.token_ids[t] for t in trained]
            owners += [i] * len(trained)
            advantages += (
                sequence.advantage
                if isinstance(sequence.advantage, SequenceOf)
                else [sequence.advantage] * len(trained)
            )
            weights += [sequence.weight] * len(trained)
            engine += [sequence.logprobs[t] for t in trained] if sequence.logprobs else [float("nan")] * len(trained)
        responses = [length for length in family.responses if length]
        if prompt and responses:
            stretches.append((prompt, responses))
        else:
            stretches += [prompt] if prompt else responses

    def integers(values: SequenceOf[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long).to(device)

    def numbers(values: SequenceOf[float]) -> Tensor:
        # float64 here: whoever computes in float32 or float64 rounds once.
        return torch.tensor(values, dtype=torch.float64).to(device)

    return MicroBatch(
        token_ids_1N=integers(token_ids)[None],
        position_ids_1N=integers(positions)[None],
        layout=PackedLayout.of(stretches, device),
        before_M=integers(before),
        targets_M=integers(targets),
        sequence_M=integers(owners),
        advantages_M=numbers(advantages),
        weights_M=numbers(weights),
        engine_logprobs_M=numbers(engine),
    )
