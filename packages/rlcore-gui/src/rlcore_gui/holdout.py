"""Hold out whole episodes while data is written, so that both parts have equal shares of every stratum.

The episodes with the lowest keyed hashes of a stratum are held out. How many that are is known only at the end, so the
candidates of each stratum wait in memory, as many as the whole subset could need. All others pass through.
"""

from __future__ import annotations

import hashlib
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

import pyarrow as pa
from rlcore.errors import DataError


@dataclass(order=True, slots=True)
class _Candidate:
    priority: int
    rows: int = field(compare=False)
    steps: pa.RecordBatch = field(compare=False)


class HoldOut:
    """Episodes of which some will be held out. What is held out depends on the seed and the ids, not on the order."""

    def __init__(self, rows: int, *, seed: int) -> None:
        """``rows`` is the number of rows to hold out, which whole episodes reach as closely as possible."""
        self._wanted = rows
        self._seed = str(seed).encode()
        self._pools: dict[str, list[_Candidate]] = {}
        self._rows: Counter[str] = Counter()
        self._strata: dict[int, str] = {}
        """Of each episode, by its keyed hash: the stratum of its first copy."""

    def offer(self, episode_id: str, stratum: str, rows: int, copy: Callable[[], pa.RecordBatch]) -> bool:
        """Let an episode wait, or let it pass. Earlier episodes may pass then, too: see `passed`.

        Args:
            episode_id: the same id gives the same decision
            stratum: what both parts have in equal shares; a copy in another stratum counts where the first one does
            rows: number of steps of the episode that are rows
            copy: returns a copy of its steps

        Returns:
            whether it waits.
        """
        digest = hashlib.blake2b(episode_id.encode("utf-8", "replace"), key=self._seed, digest_size=8).digest()
        priority = int.from_bytes(digest)
        stratum = self._strata.setdefault(priority, stratum)
        self._rows[stratum] += rows
        pool = self._pools.setdefault(stratum, [])
        enough = sum(candidate.rows for candidate in pool) >= self._wanted
        if not rows or (enough and priority > pool[-1].priority):
            return False
        insort(pool, _Candidate(priority, rows, copy()))
        return True

    def passed(self) -> list[pa.RecordBatch]:
        """Remove and return the episodes that wait, but can no longer be held out."""
        found: list[pa.RecordBatch] = []
        for pool in self._pools.values():
            waiting = 0
            kept = 0
            for copies in _episodes(pool):
                if waiting >= self._wanted:
                    break
                waiting += sum(candidate.rows for candidate in copies)
                kept += len(copies)
            found += [candidate.steps for candidate in pool[kept:]]
            del pool[kept:]
        return found

    def divide(self) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        """Return the episodes that are held out, and the waiting ones that are not.

        Raises:
            DataError: there are not enough rows or episodes for two parts.
        """
        total = self._rows.total()
        held: list[_Candidate] = []
        passed: list[_Candidate] = []
        carried = 0.0
        for stratum, pool in sorted(self._pools.items()):
            quota = carried + self._wanted * self._rows[stratum] / max(total, 1)
            taken = 0
            for copies in _episodes(pool):
                rows = sum(candidate.rows for candidate in copies)
                if quota < rows / 2:
                    break
                quota -= rows
                taken += len(copies)
            held += pool[:taken]
            passed += pool[taken:]
            carried = quota
        if not held or sum(candidate.rows for candidate in held) == total:
            raise DataError(
                "the data and its subset must both have episodes",
                found=f"subset_size={self._wanted} of {total} rows",
                fix="set a smaller subset_size, or omit subset",
            )
        return [candidate.steps for candidate in held], [candidate.steps for candidate in passed]


def _episodes(pool: list[_Candidate]) -> Iterator[list[_Candidate]]:
    """The candidates of each episode, which can occur several times. Copies are never divided."""
    for _, copies in groupby(pool, key=attrgetter("priority")):
        yield list(copies)


__all__ = ["HoldOut"]
