"""Directories of TIFF, EXIF and MPO files, whose values are read within the size of their file."""

from __future__ import annotations

import io
from typing import Any

from rlcore.errors import DataError

SHARED = 2**16
"""Bytes that the values of a directory may have in addition to those of the file: entries may share short values."""


class _Limited:
    """A file of which a directory reads little more than there is.

    Args:
        file: the file
    """

    def __init__(self, file: Any) -> None:
        self.tell, self.seek, self._read = file.tell, file.seek, file.read
        start = file.tell()
        self._size = file.seek(0, io.SEEK_END)
        file.seek(start)
        self._left = self._size + SHARED

    def read(self, size: int) -> bytes:
        """The next bytes."""
        data: bytes = self._read(size)
        self._left -= len(data)
        if self._left < 0:
            raise DataError(
                "the directory of an image must not refer to the same bytes again and again",
                found=f"entries with more than the {self._size:,} bytes of the directory's file",
                fix="save the image again without its metadata",
            )
        return data


def limit_directories() -> None:
    """Make pillow stop at a directory whose entries have more bytes together than the file.

    Pillow copies the value of every entry, so that 60,000 entries with the same 200 kB would need 12 GB. It reads the
    directories of all formats with this one method.
    """
    from PIL.TiffImagePlugin import ImageFileDirectory_v2

    load = ImageFileDirectory_v2.load
    if load.__module__ == __name__:
        return

    def limited(directory: Any, file: Any) -> None:
        load(directory, _Limited(file))  # type: ignore[arg-type]

    ImageFileDirectory_v2.load = limited  # type: ignore[method-assign, assignment]
