"""Files that are mapped into memory."""

from __future__ import annotations

import mmap
from functools import cached_property
from pathlib import Path

from rlcore.errors import UserError


class MappedFile:
    """A file that is mapped into memory at the first read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.size = path.stat().st_size
        except OSError as error:
            raise UserError("a checkpoint file cannot be read", found=str(error), where=str(path)) from None

    @cached_property
    def buffer(self) -> mmap.mmap | bytes:
        """Content of the file."""
        if not self.size:
            return b""
        try:
            with self.path.open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise UserError("a checkpoint file cannot be read", found=str(error), where=str(self.path)) from None
