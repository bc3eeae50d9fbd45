"""Sizes of screenshots, from the headers of their files: nothing is decoded."""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Literal

from rlcore.errors import DataError

Flaw = Literal["no image", "image missing", "image outside of its folder", "image name too long", "image unreadable"]
"""Why a step has no usable screenshot."""
Size = tuple[int, int]
"""Width and height in pixels."""

HEADER = 64
"""Bytes of a file that are read first. They contain the size of every PNG, and show whether its pixels follow."""
CHUNKS = 4096
"""Bytes that contain what most other PNGs have before their pixels."""
LONG_HEADER = 1 << 17
"""Bytes that contain the size of most other images."""
FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
PNG_SIZE = struct.Struct(">II")
PIXELS = b"IDAT"
FIRST = 37
"""Where the pixels of a PNG without metadata begin."""
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
THREADS = 16
TRIAL = 32
"""Files of each call that are read one by one, to see whether the file system is slow."""
SLOW_S = 2e-4
"""Seconds of one file from which on several are read at a time. Faster ones gain nothing from threads."""
_NAME = {errno.ENOENT: "image missing", errno.ENOTDIR: "image missing", errno.ENAMETOOLONG: "image name too long"}


class ImageFolder:
    """The folder that all names of screenshots are relative to, and must not leave."""

    def __init__(self, folder: Path) -> None:
        """Raises `DataError` if there is no such folder."""
        if not folder.is_dir():
            found = "a file" if folder.exists() else "no such folder"
            raise DataError(
                "the images must be in a folder", found=found, where=str(folder.absolute()), fix="correct it"
            )
        self.path = folder.resolve()
        self._root = f"{self.path}/"
        self._inside: dict[str, bool] = {"": True}

    def sizes(self, names_N: Sequence[str | None]) -> list[Size | Flaw]:
        """Return the size of each screenshot, upright, or why it cannot be used. None is a step without a name."""
        started = time.perf_counter()
        first = [self._size(name) for name in names_N[:TRIAL]]
        rest = names_N[TRIAL:]
        if not rest or time.perf_counter() - started < SLOW_S * TRIAL:
            return first + [self._size(name) for name in rest]
        share = -(-len(rest) // (4 * THREADS))
        parts = [rest[start : start + share] for start in range(0, len(rest), share)]
        with ThreadPoolExecutor(THREADS) as pool:
            return [*first, *chain.from_iterable(pool.map(self._sizes_of_part, parts))]

    def _sizes_of_part(self, names: Sequence[str | None]) -> list[Size | Flaw]:
        return [self._size(name) for name in names]

    def _size(self, name: str | None) -> Size | Flaw:
        if not name:
            return "no image"
        folder = name.rpartition("/")[0]
        if name[0] == "/" or not (self._inside.get(folder) or self._contains(folder)):
            return "image outside of its folder"
        try:
            file = os.open(self._root + name, FLAGS)
        except OSError as error:
            if error.errno == errno.ELOOP:
                return self._linked(name)
            return _NAME.get(error.errno or 0, "image unreadable")  # type: ignore[return-value]
        except ValueError:  # a null character
            return "image missing"
        try:
            header = os.read(file, HEADER)
            if header.startswith(PNG) and (
                header.startswith(PIXELS, FIRST) or _is_plain(header := header + os.read(file, CHUNKS))
            ):
                width, height = PNG_SIZE.unpack_from(header, len(PNG))
                return (width, height) if width and height else "image unreadable"
            return self._other(name, header + os.read(file, LONG_HEADER))
        except OSError:  # a folder, or a broken disk
            return "image unreadable"
        finally:
            os.close(file)

    def _other(self, name: str, header: bytes) -> Size | Flaw:
        """The size of an image that is no plain PNG, from its first bytes, or else from the whole file."""
        from rlcore.images.encoding import encode_image, image_size  # not imported for folders of plain PNGs

        try:
            return image_size(header)
        except DataError:
            try:
                return image_size(encode_image(Path(name), folder=self.path)) if header else "image unreadable"
            except DataError:
                return "image unreadable"

    def _linked(self, name: str) -> Size | Flaw:
        """The size of an image behind a symbolic link."""
        from rlcore.images.encoding import LARGEST_FILE, image_size

        place = Path(os.path.realpath(self.path / name))
        if not place.is_relative_to(self.path):
            return "image outside of its folder"
        try:
            if place.stat().st_size > LARGEST_FILE:
                return "image unreadable"
            return image_size(place.read_bytes())
        except FileNotFoundError:
            return "image missing"
        except (OSError, DataError):
            return "image unreadable"

    def _contains(self, folder: str) -> bool:
        """Whether a folder, named relative to this one, is in it. Links are followed."""
        known = self._inside.get(folder)
        if known is None:
            above, _, name = folder.rpartition("/")
            place = f"{self.path}/{folder}"
            known = name not in ("", "..") and "\0" not in name and self._contains(above)
            if known and os.path.islink(place):
                known = Path(os.path.realpath(place)).is_relative_to(self.path)
            self._inside[folder] = known
        return known


def _is_plain(header: bytes) -> bool:
    """Whether a PNG has no metadata before its pixels that could turn it."""
    from rlcore.images.encoding import PNG_METADATA

    before, found, _ = header.partition(PIXELS)
    known = found or len(header) < HEADER + CHUNKS
    return bool(known) and not any(mark in before for mark in PNG_METADATA)


__all__ = ["Flaw", "ImageFolder", "Size"]
