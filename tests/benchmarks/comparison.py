"""What a benchmark module hands to the runner: comparisons of rlcore with a peer or with a budget."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

LARGEST_DIFFERENCE_OF_HALVES = 0.30
"""A side whose two halves differ by more was measured on a machine that was busy with something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One figure: seconds of ours against seconds of a peer, or against a budget."""

    name: str
    """Short and kebab-case, such as ``groups-of-8``; printed as ``BENCHMARK/NAME``."""
    ours: Callable[[], float]
    """Does the work once and returns the seconds that count (the callable decides what it leaves out)."""
    peer: Callable[[], float] | float
    """The same work by the peer, in seconds; a plain number is a budget or an ideal time in seconds."""
    floor: float
    """The ratio ``peer / ours`` must reach this. For a budget the floor is 1."""
    warm_ups: int = 1
    """Unmeasured calls of each side before the first measured one."""
    unit: str = "s"
    """Of what both sides return, where it is not seconds but something else of which less is better, such as MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A measured comparison."""

    comparison: Comparison
    ours_s: list[float] = field(default_factory=list)
    peer_s: list[float] = field(default_factory=list)
    """Empty for a budget."""

    @property
    def ratio(self) -> float:
        """Fastest peer over fastest ours: above 1 means that rlcore is faster."""
        peer = self.comparison.peer
        return (min(self.peer_s) if callable(peer) else peer) / min(self.ours_s)

    @property
    def reaches_floor(self) -> bool:
        """Whether the ratio is at least the floor."""
        return self.ratio >= self.comparison.floor

    @property
    def conclusive(self) -> bool:
        """False when the first and the second half of one side differ too much."""
        return all(difference_of_halves(side) <= LARGEST_DIFFERENCE_OF_HALVES for side in (self.ours_s, self.peer_s))

    def lines(self) -> list[str]:
        """What to print about it."""
        unit = self.comparison.unit
        rows = [("ours", self.ours_s), ("peer", self.peer_s)]
        return [
            f"  {name}: minimum {min(side):.4f} {unit}, median {statistics.median(side):.4f} {unit} "
            f"over {len(side)} runs, "
            f"halves differ by {difference_of_halves(side):.0%}"
            if side
            else f"  {name}: budget {self.comparison.peer:.4f} {unit}"
            for name, side in rows
        ]


def difference_of_halves(seconds: list[float]) -> float:
    """How much slower the slower half's minimum is than the other's; 0.0 with fewer than two values."""
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
