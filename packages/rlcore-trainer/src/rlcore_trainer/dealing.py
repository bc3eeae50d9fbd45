"""Who does what of work that several processes share: every one of them finds the same answer by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Place:
    """Which of how many processes this one is."""

    index: int = 0
    count: int = 1

    @property
    def key(self) -> tuple[int, ...]:
        """What a seed takes along so that processes draw different numbers; the first draws as one alone does."""
        return (self.index,) if self.index else ()


ALONE = Place()


def share(items: Sequence[Item], place: Place) -> list[Item]:
    """Every ``count``-th item, from the ``index``-th on."""
    return list(items[place.index :: place.count])


def joined(shares: Sequence[Sequence[Item]]) -> list[Item]:
    """The inverse of `share`: all items in their order, from the shares of all processes in theirs."""
    total = sum(len(one) for one in shares)
    return [shares[i % len(shares)][i // len(shares)] for i in range(total)]


def dealt(sizes: Sequence[int], place: Place) -> list[int]:
    """Which pieces of work are this process's, in the given order.

    The largest piece goes first and each to who has least so far (Graham 1969, LPT: at most 4/3 of the best possible
    largest load). The first process has something whenever there is anything.
    """
    loads = [0] * place.count
    mine = []
    for piece in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        least = loads.index(min(loads))
        loads[least] += max(1, sizes[piece])
        if least == place.index:
            mine.append(piece)
    return sorted(mine)


def fair_size(sizes: Sequence[int], limit: int, place: Place) -> int:
    """How much may be done at once so that there is something for everybody; never more than ``limit``.

    Where there are as many pieces as processes, none need be cut: each may be done whole.
    """
    fair = -(-sum(sizes) // place.count)
    if len(sizes) >= place.count:
        fair = max(fair, *sizes)
    return min(limit, max(1, fair))
