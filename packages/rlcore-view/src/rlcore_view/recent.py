"""Values that are kept until the files change from which they were computed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")
Stamp = tuple[int, int, int] | None
LOCKS = 16
"""Values that can be computed at the same time: a slow file holds up only questions about it and few others."""


def stamp(path: Path) -> Stamp:
    """Differs when a file differs; None if there is none."""
    with suppress(OSError):
        found = path.stat()
        return found.st_size, found.st_mtime_ns, found.st_ino
    return None


class Recent(Generic[Value]):
    """The last values that were computed from files. A value is computed again if one of its files differs.

    One thread computes a value at a time, so that several questions about the same file read it once.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._known: OrderedDict[Any, tuple[Sequence[Stamp], Value]] = OrderedDict()
        self._lock = threading.Lock()
        self._computing = [threading.Lock() for _ in range(LOCKS)]

    def get(self, key: Any, files: Sequence[Path], compute: Callable[[], Value]) -> Value:
        """The value of a key, computed from these files."""
        with self._computing[hash(key) % LOCKS]:
            stamps = [stamp(path) for path in files]
            with self._lock:
                known = self._known.get(key)
            if known is None or known[0] != stamps:
                known = stamps, compute()
            with self._lock:
                self._known[key] = known
                self._known.move_to_end(key)
                while len(self._known) > self._count:
                    self._known.popitem(last=False)
            return known[1]


__all__ = ["Recent", "stamp"]
