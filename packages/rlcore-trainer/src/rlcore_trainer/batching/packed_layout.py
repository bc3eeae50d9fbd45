"""Layout of the sequences in a packed row, and the padded buckets in which attention computes them.

Axes: ``N`` the tokens of the row, ``B`` the sequences of a bucket, ``L`` the longest sequence length of a bucket, ``P``
the slots of all buckets together, ``R`` the response tokens of all families, ``K`` the prompt tokens of all families.

A row consists of whole sequences and families. A family is a prompt followed by the responses that share it. Each whole
sequence, prompt and response is a stretch. Attention is causal within a stretch, and a response also attends to the
whole prompt of its family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from rlcore_trainer.batching.team import Team

SLACK = 1.15
"""Maximum ratio of the longest to the shortest sequence length in a bucket."""


class Family(NamedTuple):
    """Row positions of a family: the prompt from ``start`` to ``middle``, the responses from ``middle`` to ``end``."""

    start: int
    middle: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Sequences of similar length as tensors of shape [B, L].

    Shorter sequences are padded at the end with copies of their last token. The causal mask hides this padding from all
    real tokens. If the row already has the layout of its buckets, no data is moved.
    """

    shapes: tuple[tuple[int, int], ...]
    """``(B, L)`` of each bucket."""
    gather_P: Tensor | None
    """The row position copied to each slot; None if slots and positions are identical."""
    scatter_N: Tensor | None
    """The slot of each row position; None if slots and positions are identical."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[range]], tokens: int, device: torch.device, *, slack: float = SLACK) -> Buckets:
        """Create the buckets for sequences, each given as its stretches of the row."""
        lengths = [sum(map(len, stretches)) for stretches in rows]
        members: list[list[int]] = []
        for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
            if not members or lengths[members[-1][0]] > slack * lengths[i]:
                members.append([])
            members[-1].append(i)
        positions: list[Tensor] = []
        real: list[Tensor] = []
        for bucket in members:
            longest = lengths[bucket[0]]
            for i in bucket:
                ranges = [torch.arange(stretch.start, stretch.stop) for stretch in rows[i]]
                padding = longest - lengths[i]
                positions += [*ranges, ranges[-1][-1].expand(padding)]
                real.append(torch.arange(longest) < lengths[i])
        gather_P, real_P = torch.cat(positions), torch.cat(real)
        places_P = torch.arange(len(gather_P))
        # A position with several slots uses the first.
        scatter_N = torch.full((tokens,), len(gather_P)).scatter_reduce_(0, gather_P[real_P], places_P[real_P], "amin")
        moved = not torch.equal(gather_P, torch.arange(tokens))
        return cls(
            shapes=tuple((len(bucket), lengths[bucket[0]]) for bucket in members),
            gather_P=gather_P.to(device) if moved else None,
            scatter_N=scatter_N.to(device) if moved else None,
        )

    def places(self, x_N: Tensor) -> Tensor:
        """Gather row values into the slots."""
        return x_N if self.gather_P is None else x_N.index_select(0, self.gather_P)

    def positions(self, x_P: Tensor) -> Tensor:
        """Gather slot values back into the row."""
        return x_P if self.scatter_N is None else x_P.index_select(0, self.scatter_N)

    def placed_once(self, x_N: Tensor) -> Tensor:
        """Like `places`, but with zeros instead of repeated values."""
        if self.gather_P is None or self.scatter_N is None:
            return x_N
        return x_N.new_zeros(len(self.gather_P), *x_N.shape[1:]).index_copy_(0, self.scatter_N, x_N)


@dataclass(frozen=True, kw_only=True)
class PackedLayout:
    """Layout of a packed row, with the index tensors that attention needs."""

    lengths: tuple[int, ...]
    """Length of each stretch, in row order."""
    families: tuple[Family, ...]
    """The stretches that form a prompt with its responses."""
    device: torch.device
    slack: float = SLACK
    team: Team | None = None
    """The processes that compute the row together; None if this process computes it alone."""

    @classmethod
    def of(
        cls,
        sequences: Sequence[int | tuple[int, Sequence[int]]],
        device: torch.device,
        *,
        slack: float = SLACK,
        team: Team | None = None,
    ) -> PackedLayout:
        """Create the layout of sequences and families.

        A sequence is given by its length, a family by the length of its prompt and the lengths of its responses. A
        family has at least one response, and no response is empty.
        """
        lengths: list[int] = []
        families: list[Family] = []
        for sequence in sequences:
            if isinstance(sequence, int):
                lengths.append(sequence)
            else:
                prompt, responses = sequence
                start = sum(lengths)
                lengths += [prompt, *responses]
                families.append(Family(start, start + prompt, start + prompt + sum(responses)))
        return cls(lengths=tuple(lengths), families=tuple(families), device=device, slack=slack, team=team)

    @property
    def tokens(self) -> int:
        """Number of tokens in the row."""
        return sum(self.lengths)

    @cached_property
    def stretches(self) -> list[range]:
        """Row positions of each stretch."""
        return [range(end - length, end) for length, end in zip(self.lengths, accumulate(self.lengths), strict=True)]

    @cached_property
    def own(self) -> Buckets:
        """Buckets in which each stretch is a separate sequence."""
        return Buckets.of([[stretch] for stretch in self.stretches], self.tokens, self.device, slack=self.slack)

    @cached_property
    def sequences(self) -> list[list[range]]:
        """The stretches of each sequence; a response is preceded by its prompt."""
        prompts = {family.start: family for family in self.families}
        found: list[list[range]] = []
        family = Family(0, 0, 0)
        for stretch in self.stretches:
            if stretch.start in prompts:
                family = prompts[stretch.start]
            elif stretch.stop <= family.end:
                found.append([range(family.start, family.middle), stretch])
            else:
                found.append([stretch])
        return found

    @cached_property
    def longest(self) -> int:
        """Number of tokens in the longest sequence."""
        return max(sum(map(len, stretches)) for stretches in self.sequences)

    @cached_property
    def whole(self) -> Buckets:
        """Buckets in which each response has its own copy of the prompt, for attention without prefix sharing."""
        return Buckets.of(self.sequences, self.tokens, self.device, slack=self.slack)

    @cached_property
    def response_rows_R(self) -> Tensor:
        """Row positions of the responses of all families."""
        return _positions([range(family.middle, family.end) for family in self.families], self.device)

    @cached_property
    def prompt_rows_K(self) -> Tensor:
        """Row positions of the prompts of all families."""
        return _positions([range(family.start, family.middle) for family in self.families], self.device)

    @cached_property
    def offsets(self) -> Tensor:
        """Start of each stretch and end of the last one, int32."""
        return _offsets(self.lengths, self.device)

    @cached_property
    def response_offsets(self) -> Tensor:
        """Start of each family's responses in `response_rows_R` and end of the last one, int32."""
        return _offsets([family.end - family.middle for family in self.families], self.device)

    @cached_property
    def prompt_offsets(self) -> Tensor:
        """Start of each family's prompt in `prompt_rows_K` and end of the last one, int32."""
        return _offsets([family.middle - family.start for family in self.families], self.device)


def _positions(ranges: Sequence[range], device: torch.device) -> Tensor:
    return torch.cat([torch.arange(positions.start, positions.stop) for positions in ranges]).to(device)


def _offsets(lengths: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32).to(device)
