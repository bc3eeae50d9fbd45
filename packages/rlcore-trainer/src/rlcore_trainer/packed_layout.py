"""Where the sequences of a packed row stand, and the places that attention computes them in.

Axes: ``N`` the tokens of the row, ``B`` the sequences of a bucket, ``L`` the longest of a bucket, ``P`` the places of
all buckets together, ``R`` the response tokens of all families, ``K`` their prompt tokens.

A row is made of stretches: whole sequences, and families, which are a prompt followed by the responses that share it.
Every stretch is causal in itself; a response sees the whole prompt of its family besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

SLACK = 1.15
"""Sequences share a bucket while the longest has at most this many times the tokens of the shortest."""


class Family(NamedTuple):
    """Row positions: the prompt from ``start`` to ``middle``, its responses one after another from there to ``end``."""

    start: int
    middle: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Sequences of similar length as tensors of shape [B, L].

    The ends of the shorter ones repeat their last token, where causality hides it from every real token.
    When the row is its buckets already, nothing is moved.
    """

    shapes: tuple[tuple[int, int], ...]
    """``(B, L)`` of each bucket."""
    gather_P: Tensor | None
    """The position in the row that goes to each place; None when places and positions are the same."""
    scatter_N: Tensor | None
    """A place of each position of the row."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[range]], tokens: int, device: torch.device, *, slack: float = SLACK) -> Buckets:
        """Of sequences, each given as the stretches of the row that it consists of."""
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
        # The first place of a position that has several.
        scatter_N = torch.full((tokens,), len(gather_P)).scatter_reduce_(0, gather_P[real_P], places_P[real_P], "amin")
        moved = not torch.equal(gather_P, torch.arange(tokens))
        return cls(
            shapes=tuple((len(bucket), lengths[bucket[0]]) for bucket in members),
            gather_P=gather_P.to(device) if moved else None,
            scatter_N=scatter_N.to(device) if moved else None,
        )

    def places(self, x_N: Tensor) -> Tensor:
        """What stands at each place, of values along the row."""
        return x_N if self.gather_P is None else x_N.index_select(0, self.gather_P)

    def positions(self, x_P: Tensor) -> Tensor:
        """Back from the places to the row."""
        return x_P if self.scatter_N is None else x_P.index_select(0, self.scatter_N)

    def placed_once(self, x_N: Tensor) -> Tensor:
        """As `places`, but with zeros instead of repetitions."""
        if self.gather_P is None or self.scatter_N is None:
            return x_N
        return x_N.new_zeros(len(self.gather_P), *x_N.shape[1:]).index_copy_(0, self.scatter_N, x_N)


@dataclass(frozen=True, kw_only=True)
class PackedLayout:
    """A packed row, and how attention takes it."""

    lengths: tuple[int, ...]
    """Of the stretches, one after another in the row."""
    families: tuple[Family, ...]
    """Those stretches that are a prompt with its responses."""
    device: torch.device
    slack: float = SLACK

    @classmethod
    def of(
        cls,
        sequences: Sequence[int | tuple[int, Sequence[int]]],
        device: torch.device,
        *,
        slack: float = SLACK,
    ) -> PackedLayout:
        """The layout of sequences, given by their length, and families, as the prompt's length and the responses'.

        A family has at least one response, and none of no length.
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
        return cls(lengths=tuple(lengths), families=tuple(families), device=device, slack=slack)

    @property
    def tokens(self) -> int:
        """How many tokens the row has."""
        return sum(self.lengths)

    @cached_property
    def stretches(self) -> list[range]:
        """Where each stretch stands."""
        return [range(end - length, end) for length, end in zip(self.lengths, accumulate(self.lengths), strict=True)]

    @cached_property
    def own(self) -> Buckets:
        """Every stretch for itself."""
        return Buckets.of([[stretch] for stretch in self.stretches], self.tokens, self.device, slack=self.slack)

    @cached_property
    def sequences(self) -> list[list[range]]:
        """Every sequence as the stretches that it consists of: a response has its prompt before it."""
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
        """Tokens of the longest sequence."""
        return max(sum(map(len, stretches)) for stretches in self.sequences)

    @cached_property
    def whole(self) -> Buckets:
        """Every response with a copy of its prompt before it, for attention that cannot share."""
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
        """Start of each stretch and the end of the last, int32."""
        return _offsets(self.lengths, self.device)

    @cached_property
    def response_offsets(self) -> Tensor:
        """Where each family's responses start among `response_rows_R`, and the end of the last, int32."""
        return _offsets([family.end - family.middle for family in self.families], self.device)

    @cached_property
    def prompt_offsets(self) -> Tensor:
        """Where each family's prompt starts among `prompt_rows_K`, and the end of the last, int32."""
        return _offsets([family.middle - family.start for family in self.families], self.device)


def _positions(ranges: Sequence[range], device: torch.device) -> Tensor:
    return torch.cat([torch.arange(positions.start, positions.stop) for positions in ranges]).to(device)


def _offsets(lengths: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32).to(device)
