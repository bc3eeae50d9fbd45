"""Comparisons of rlcore with a peer or a budget."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

LARGEST_DIFFERENCE_OF_HALVES = 0.30
"""A larger difference between the halves of one side means that the machine was busy."""


@dataclass(frozen=True, slots=True)
class Absent:
    """Replaces a peer that cannot run here. Only smoke runs accept it."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One result: our seconds against the seconds of a peer or a budget."""

    name: str
    """Short and kebab-case, such as ``groups-of-8``; printed as ``BENCHMARK/NAME``."""
    ours: Callable[[], float]
    """Does the work once and returns the measured seconds."""
    peer: Callable[[], float] | float | Absent
    """The same work by the peer. A number is a budget or an ideal time in seconds."""
    floor: float
    """The minimum ratio ``peer / ours``. For a budget the floor is 1."""
    warm_ups: int = 1
    """Calls of each side before the first measured one."""
    unit: str = "s"
    """The unit of both sides. Lower values are better, as in MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A measured comparison."""

    comparison: Comparison
    ours_s: list[float] = field(default_factory=list)
    peer_s: list[float] = field(default_factory=list)
    """Empty for a budget."""

    @property
    def ratio(self) -> float:
        """The minimum of the peer divided by ours. Above 1, rlcore is faster."""
        return self.peer_least / min(self.ours_s)

    @property
    def peer_least(self) -> float:
        """The minimum of the peer, or the budget."""
        peer = self.comparison.peer
        assert not isinstance(peer, Absent), peer.why
        return min(self.peer_s) if callable(peer) else peer

    @property
    def reaches_floor(self) -> bool:
        """Whether the ratio is at least the floor."""
        return self.ratio >= self.comparison.floor

    @property
    def conclusive(self) -> bool:
        """False if the first and the second half of one side differ too much."""
        return all(difference_of_halves(side) <= LARGEST_DIFFERENCE_OF_HALVES for side in (self.ours_s, self.peer_s))

    def lines(self) -> list[str]:
        """The lines to print."""
        unit = self.comparison.unit
        rows = [("ours", self.ours_s), ("peer", self.peer_s)]
        return [
            f"  {name}: minimum {min(side):.4f} {unit}, median {statistics.median(side):.4f} {unit} "
            f"over {len(side)} runs, "
            f"halves differ by {difference_of_halves(side):.0%}"
            if side
            else f"  {name}: budget {self.peer_least:.4f} {unit}"
            for name, side in rows
        ]


def difference_of_halves(seconds: list[float]) -> float:
    """The relative difference between the minima of both halves. 0.0 with fewer than two values."""
    middle = len(seconds) // 2
    if not middle:
        return 0.0
    first, second = min(seconds[:middle]), min(seconds[middle:])
    return max(first, second) / min(first, second) - 1


def measure(comparison: Comparison, repeats: int) -> Outcome:
    """Run both sides in turn, ``repeats`` times each, after the warm-ups."""
    ours, peer = comparison.ours, comparison.peer
    for _ in range(comparison.warm_ups):
        ours()
        if callable(peer):
            peer()
    outcome = Outcome(comparison=comparison)
    for _ in range(repeats):
        if callable(peer):
            outcome.peer_s.append(peer())
        outcome.ours_s.append(ours())
    return outcome


def smoke(comparison: Comparison) -> str:
    """Run each side once and return a summary. The sides assert their own results."""
    ours, peer = comparison.ours(), comparison.peer
    if isinstance(peer, Absent):
        return f"ours ran ({ours:.4g} {comparison.unit}), peer skipped: {peer.why}"
    if not callable(peer):
        return f"ours ran ({ours:.4g} {comparison.unit}), the peer is the number {peer:.4g}"
    return f"ours ran ({ours:.4g} {comparison.unit}), peer ran ({peer():.4g} {comparison.unit})"
