"""Sequences to packed micro-batches: one row of concatenated sequences, no padding.

Axes: ``N`` the tokens of a packed row, ``M`` its trained tokens.

The log-probability of the token at position t comes from the hidden state at t-1. So what a row carries is, for every
trained token, the row position before it; the last trained token of a sequence and everything after it need not be
fed at all.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import torch
from torch import Tensor

from rlcore_trainer.attention import PackedLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """One sequence to train on, length T."""

    token_ids: SequenceOf[int]
    loss_mask: SequenceOf[bool]
    """True on the tokens to train."""
    logprobs: SequenceOf[float] = ()
    """The engine's log-probabilities, length T; may be absent."""
    advantage: float = 0.0
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


def plan(lengths: SequenceOf[int], max_tokens: int) -> list[list[int]]:
    """Which sequences go together: longest first, up to ``max_tokens`` a micro-batch.

    Neighbours have similar lengths, which is what attention on a CPU likes. A sequence longer than the budget gets a
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


def pack(sequences: SequenceOf[Sequence], max_tokens: int, device: torch.device) -> list[MicroBatch]:
    """Micro-batches of at most ``max_tokens`` fed tokens that hold every trained token exactly once.

    Sequences without a trained token are left out.

    Raises:
        ValueError: the first token of a sequence is to be trained, which nothing predicts.
    """
    if any(sequence.loss_mask[0] for sequence in sequences if sequence.loss_mask):
        raise ValueError("the first token of a sequence cannot be trained: nothing stands before it")
    kept = [i for i, sequence in enumerate(sequences) if sequence.fed]
    lengths = [sequences[i].fed for i in kept]
    return [_pack(sequences, [kept[j] for j in batch], device) for batch in plan(lengths, max_tokens)]


def _pack(sequences: SequenceOf[Sequence], members: SequenceOf[int], device: torch.device) -> MicroBatch:
    token_ids: list[int] = []
    positions: list[int] = []
    before: list[int] = []
    targets: list[int] = []
    owners: list[int] = []
    engine: list[float] = []
    for i in members:
        sequence, start = sequences[i], len(token_ids)
        trained = [t for t, is_trained in enumerate(sequence.loss_mask) if is_trained]
        token_ids += sequence.token_ids[: sequence.fed]
        positions += range(sequence.fed)
        before += [start + t - 1 for t in trained]
        targets += [sequence.token_ids[t] for t in trained]
        owners += [i] * len(trained)
        engine += [sequence.logprobs[t] for t in trained] if sequence.logprobs else [float("nan")] * len(trained)

    def integers(values: SequenceOf[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long).to(device)

    def numbers(values: SequenceOf[float]) -> Tensor:
        # float64 here: whoever computes in float32 or float64 rounds once.
        return torch.tensor(values, dtype=torch.float64).to(device)

    return MicroBatch(
        token_ids_1N=integers(token_ids)[None],
        position_ids_1N=integers(positions)[None],
        layout=PackedLayout.of([sequences[i].fed for i in members], device),
        before_M=integers(before),
        targets_M=integers(targets),
        sequence_M=integers(owners),
        advantages_M=numbers([sequences[i].advantage for i in owners]),
        weights_M=numbers([sequences[i].weight for i in owners]),
        engine_logprobs_M=numbers(engine),
    )
