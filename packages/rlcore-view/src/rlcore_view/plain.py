"""Values of a run as JSON that every browser reads, and values that are kept until their files change."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from rlcore.errors import UserError

Value = TypeVar("Value")
Stamp = tuple[int, int, int] | None
LARGEST = 1e308
"""Larger integers are infinite in a browser."""
LOCKS = 16
"""Values that can be computed at the same time: a slow file holds up only questions about it and few others."""
EXACT = 2**53
"""Larger integers, such as seeds, have other digits in a browser, so they are sent as text."""


class NotFoundError(UserError):
    """Something that there is not: a run, a step, a group, an image."""


def plain(value: Any) -> Any:
    """A value as JSON: numbers that are not finite become null, large integers text; lone surrogates are replaced."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return {text(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if type(value) is int and EXACT < abs(value) < LARGEST:
        return str(value)
    return value if value is None or isinstance(value, bool) else number(value)


def number(value: Any) -> float | None:
    """A finite number; None for everything else."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    return value if isinstance(value, (int, float)) and abs(value) < LARGEST else None


def text(value: str) -> str:
    """A text without lone surrogates."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")


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


__all__ = ["NotFoundError", "Recent", "number", "plain", "stamp", "text"]
