"""Hold out whole episodes, so that both parts of the data have equal shares of every stratum."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable

from rlcore.console.wording import counted
from rlcore.errors import DataError

STEPS = 100
"""Sizes that are tried for the fix of an error."""


def hold_out(episodes: Iterable[tuple[str, str, int]], rows: int, *, seed: int) -> set[str]:
    """Return the ids of the episodes to hold out. They depend on the seed and the ids, not on the order.

    Args:
        episodes: id, stratum and number of rows of each. Copies of an episode are never divided, and count in the
            stratum of the first
        rows: number of rows to hold out, which whole episodes reach as closely as possible
        seed: of the choice

    Raises:
        DataError: there are not enough rows or episodes for two parts.
    """
    stratum_of: dict[str, str] = {}
    rows_of, rows_in = Counter[str](), Counter[str]()
    for id, stratum, count in episodes:
        rows_of[id] += count
        rows_in[stratum_of.setdefault(id, stratum)] += count
    strata: defaultdict[str, list[str]] = defaultdict(list)
    for id, stratum in stratum_of.items():
        if rows_of[id]:
            strata[stratum].append(id)
    total, count = rows_of.total(), sum(map(len, strata.values()))
    for ids in strata.values():
        ids.sort(key=lambda id: _priority(id, seed))

    def chosen(rows: int) -> set[str]:
        """The episodes to hold out; none if one of the parts would be empty."""
        held: set[str] = set()
        quota = 0.0
        for stratum, ids in sorted(strata.items()):
            quota += rows * rows_in[stratum] / total  # what the strata before could not reach is carried over
            for id in ids:
                if quota < rows_of[id] / 2:
                    break
                quota -= rows_of[id]
                held.add(id)
        return held if len(held) < count else set()

    if held := chosen(rows):
        return held
    sizes = [total * part // STEPS for part in range(1, STEPS)] if count > 1 else []
    possible = [size for size in sorted(sizes, key=lambda size: abs(size - rows)) if size and chosen(size)]
    fix = f"set subset_size={possible[0]}, or omit subset" if possible else "add episodes, or omit subset"
    raise DataError(
        "the data and its subset must both have episodes, which are never divided",
        found=f"subset_size={rows} (rows) of {counted(count, 'episode')} with {counted(total, 'row')}",
        fix=fix,
    )


def _priority(id: str, seed: int) -> bytes:
    return hashlib.blake2b(id.encode("utf-8", "replace"), key=str(seed).encode(), digest_size=8).digest()


__all__ = ["hold_out"]
