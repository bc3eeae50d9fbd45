"""An engine with continuous batching as a fluid server.

All active sequences get a token per iteration, so an engine has one clock of tokens, its progress, and a sequence ends
when the progress reaches its end. The time of an iteration grows linearly while caches grow, so the time of many
iterations has a closed form, and events are only the ends of sequences and arrivals.
"""

from __future__ import annotations

import heapq
import math
from typing import Generic, TypeVar

from rlcore_trainer.planning.costs import Decoding

Sequence = TypeVar("Sequence")
_SAME = 1e-6
"""Tokens by which the ends of sequences may differ that end in the same iteration."""


class Engine(Generic[Sequence]):
    """One engine.

    Attributes:
        active: the number of sequences
        epoch: changes whenever the next end changes
        busy_s: seconds with work
        sequence_s: seconds of all sequences
        tokens: sampled tokens
    """

    __slots__ = (
        "_base",
        "_costs",
        "_debt",
        "_ends",
        "_now",
        "_progress",
        "_sequence",
        "active",
        "busy_s",
        "epoch",
        "sequence_s",
        "tokens",
    )

    def __init__(self, costs: Decoding) -> None:
        self._costs = costs
        self._ends: list[tuple[float, int, float, Sequence]] = []
        self._progress = self._base = self._debt = self._now = 0.0  # _base: context without the progress
        self._sequence = self.active = self.epoch = 0
        self.busy_s = self.sequence_s = self.tokens = 0.0

    @property
    def has_room(self) -> bool:
        """Whether another sequence can start."""
        return self.active < self._costs.slots

    def admit(self, sequence: Sequence, now: float, *, context: float, prefill: float, tokens: float) -> None:
        """Start a sequence: compute its new tokens, then sample."""
        self.advance(now)
        self._debt += self._costs.prefill_s(prefill)
        self._sequence += 1
        offset = context - self._progress
        heapq.heappush(self._ends, (self._progress + tokens, self._sequence, offset, sequence))
        self._base += offset
        self.active += 1
        self.epoch += 1

    def pause(self, now: float, seconds: float) -> None:
        """Stop for some seconds, as at a transfer of weights."""
        self.advance(now)
        if self.active:
            self._debt += seconds
        self.epoch += 1

    def next_end(self) -> float:
        """The time at which the next sequence ends; infinity without any."""
        if not self._ends:
            return math.inf
        first, growth = self._iteration()
        tokens = self._ends[0][0] - self._progress
        return self._now + self._debt + tokens * (first + growth * tokens / 2)

    def finished(self, now: float) -> list[Sequence]:
        """Remove the sequences that end now."""
        self.advance(now)
        self._move(self._ends[0][0] - self._progress)  # without the rounding errors of the inverse
        found = []
        while self._ends and self._ends[0][0] <= self._progress + _SAME:
            _, _, offset, sequence = heapq.heappop(self._ends)
            self._base -= offset
            self.active -= 1
            found.append(sequence)
        self.epoch += 1
        return found

    def advance(self, now: float) -> None:
        """Compute until now."""
        seconds, self._now = now - self._now, now
        if not self.active or seconds <= 0:
            return
        self.busy_s += seconds
        self.sequence_s += seconds * self.active
        waited = min(self._debt, seconds)
        self._debt -= waited
        seconds -= waited
        if seconds > 0:
            first, growth = self._iteration()
            self._move(2 * seconds / (first + math.sqrt(first * first + 2 * growth * seconds)))

    def _move(self, tokens: float) -> None:
        self._progress += tokens
        self.tokens += tokens * self.active

    def _iteration(self) -> tuple[float, float]:
        return self._costs.iteration(self.active, self._base + self.active * self._progress)


__all__ = ["Engine"]
