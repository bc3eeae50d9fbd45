"""How long the parts of an episode take: turns, tools, cells of the sandbox, requests to a judge, and rewards.

The times of an episode are collected in a context variable, so that a tool or a client of an endpoint needs no
reference to the episode. Outside of an episode, nothing is collected.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Self

from rlcore.types import Timing

_collected: ContextVar[list[Timing] | None] = ContextVar("rlcore_times", default=None)
MOST = 10_000
"""Number of times that are kept of an episode."""


@contextmanager
def collected() -> Iterator[list[Timing]]:
    """Collect the times of an episode in a list, in the order in which its parts end."""
    found: list[Timing] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


class timed:
    """Measure a block as a part of the episode.

    Args:
        kind: see `Timing.kind`
        name: what took the time, such as the name of a tool
    """

    __slots__ = ("_began", "_kind", "_name", "_start")

    def __init__(self, kind: str, name: str = "") -> None:
        self._kind, self._name = kind, name

    def __enter__(self) -> Self:
        self._start, self._began = time.time(), time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        add_time(self._kind, self._name, self._start, time.perf_counter() - self._began)


def add_time(kind: str, name: str, start: float, seconds: float) -> None:
    """Add a part that was measured otherwise; as the fields of `Timing`."""
    found = _collected.get()
    if found is not None and len(found) < MOST:
        found.append(Timing(kind, name, start, seconds))


__all__ = ["add_time", "collected", "timed"]
