"""Divide work between processes deterministically and without communication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Rank:
    """Rank of this process and the world size."""

    index: int = 0
    world_size: int = 1

    @property
    def key(self) -> tuple[int, ...]:
        """Seed components that make processes draw different numbers; empty for rank 0, as in a single-process run."""
        return (self.index,) if self.index else ()


SINGLE_RANK = Rank()


def share(items: Sequence[Item], rank: Rank) -> list[Item]:
    """Return every ``world_size``-th item, starting at ``rank.index``."""
    return list(items[rank.index :: rank.world_size])


def joined(shares: Sequence[Sequence[Item]]) -> list[Item]:
    """Return all items in their original order, given the shares in rank order. The inverse of `share`."""
    total = sum(len(one) for one in shares)
    return [shares[i % len(shares)][i // len(shares)] for i in range(total)]


def shards(sizes: Sequence[int], processes: int) -> list[list[int]]:
    """Return the indices of the pieces of work of each process, in ascending order.

    Pieces are assigned in descending order of size, each to the process with the smallest load so far (Graham 1969,
    LPT: the largest load is at most 4/3 of the optimum). The first process receives a piece whenever there is one.
    """
    loads = [0] * processes
    found: list[list[int]] = [[] for _ in range(processes)]
    for piece in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        least = loads.index(min(loads))
        loads[least] += max(1, sizes[piece])
        found[least].append(piece)
    return [sorted(one) for one in found]


def fair_size(sizes: Sequence[int], limit: int, processes: int) -> int:
    """Return a batch size, at most ``limit``, that leaves work for every process.

    If there are at least as many pieces as processes, the size is at least that of the largest piece, up to ``limit``,
    so pieces within the limit are not cut.
    """
    fair = -(-sum(sizes) // processes)
    if len(sizes) >= processes:
        fair = max(fair, *sizes)
    return min(limit, max(1, fair))
