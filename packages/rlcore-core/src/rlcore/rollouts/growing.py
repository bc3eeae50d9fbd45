"""The rows of a step in progress."""

from __future__ import annotations

import threading
import zlib
from pathlib import Path

from rlcore.errors import DataError
from rlcore.rollouts.index import Row, groups_from


class Growing:
    """The rows of a file of a step in progress. Only new groups are read.

    Args:
        path: the file
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._rows: list[Row] = []
        self._inode = 0

    def rows(self) -> list[Row]:
        """The rows of the groups that are complete. Raises `DataError` if the file is gone."""
        with self._lock:
            try:
                self._advance()
            except FileNotFoundError:
                raise DataError(f"{self._path} is gone", fix="the step has ended: ask again") from None
            except (OSError, ValueError, zlib.error, DataError):  # the rest of a file of a killed process
                pass
            return list(self._rows)

    def _advance(self) -> None:
        found, last = self._path.stat(), self._rows[-1] if self._rows else None
        if last is None or found.st_ino != self._inode or found.st_size < last["offset"] + last["length"]:
            self._rows, self._inode, last = [], found.st_ino, None
        offset, first = (last["offset"] + last["length"], last["group"] + 1) if last is not None else (0, 0)
        for _, rows in groups_from(self._path, offset, first, decode_bytes=str.encode):
            self._rows += rows


__all__ = ["Growing"]
