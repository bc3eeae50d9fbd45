"""Sizes of screenshots, from the headers of their files, also in a second process: nothing is decoded."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast

from rlcore.errors import DataError
from rlcore.images.encoding import LARGEST_FILE, image_size
from rlcore.transport.lines import Lines
from rlcore.transport.process import ChildProcess
from rlcore.transport.remote import Ended

Flaw = Literal["no image", "image missing", "image outside of its folder", "image name too long", "image unreadable"]
"""Why a step has no usable screenshot."""
Size = tuple[int, int]
"""Width and height in pixels."""

HEADER = 1 << 14
"""Bytes of a file that are read first. They contain the size of most images."""
THREADS, PART = 16, 32
"""Threads for slow file systems, and the number of files that one reads at a time."""
LONGEST_ANSWER = 1 << 26
"""Limit of the sizes of a batch in bytes."""
COMMAND = "from rlcore_gui.prepare.screenshots import serve; serve()"
_FLAWS: dict[int | None, Flaw] = {
    errno.ENOENT: "image missing",
    errno.ENOTDIR: "image missing",
    errno.ENAMETOOLONG: "image name too long",
}


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
        self._inside: dict[str, bool] = {}

    def sizes(self, names_N: Sequence[str | None]) -> list[Size | Flaw]:
        """Return the size of each screenshot, upright, or why it cannot be used. None is a step without a name."""
        parts = [names_N[start : start + PART] for start in range(0, len(names_N), PART)]
        with ThreadPoolExecutor(THREADS) as pool:
            return list(chain.from_iterable(pool.map(self._sizes_of_part, parts)))

    def _sizes_of_part(self, names: Sequence[str | None]) -> list[Size | Flaw]:
        return [self._size(name) for name in names]

    def _size(self, name: str | None) -> Size | Flaw:
        if not name:
            return "no image"
        path = os.path.join(self.path, name)
        try:
            if not self._contains(os.path.dirname(path)):
                return "image outside of its folder"
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                path = os.path.realpath(path)
                if not self._contains(os.path.dirname(path)):
                    return "image outside of its folder"
                status = os.stat(path)
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_FILE:
                return "image unreadable"
            with open(path, "rb", buffering=0) as file:
                header = file.read(HEADER)
                try:
                    return image_size(header)
                except DataError:
                    return image_size(header + file.read())
        except OSError as error:
            return _FLAWS.get(error.errno, "image unreadable")
        except ValueError:  # a null character
            return "image missing"
        except DataError:
            return "image unreadable"

    def _contains(self, folder: str) -> bool:
        """Whether another folder is this one or in it. Links are followed."""
        known = self._inside.get(folder)
        if known is None:
            known = self._inside[folder] = Path(os.path.realpath(folder)).is_relative_to(self.path)
        return known


class Prober:
    """Reads the sizes of screenshots in a second process, while this one parses and writes.

    Between `begin` and `result`, the caller does other work. As a context manager, it ends the process.
    """

    def __init__(self, folder: ImageFolder, *, process: bool = True) -> None:
        """Start the process, unless there are too few screenshots for one."""
        self._folder = folder
        self._lines: Lines | None = None
        self._names_N: Sequence[str | None] = ()
        command = [sys.executable, "-P", "-c", COMMAND, str(folder.path)]  # no modules of the current folder
        if process:
            with suppress(OSError):
                self._lines = Lines(ChildProcess(command, os.environ), LONGEST_ANSWER)

    def begin(self, names_N: Sequence[str | None]) -> None:
        """Begin with these screenshots."""
        self._names_N = names_N
        if self._lines is not None:
            with suppress(Ended):
                self._lines.send(names_N)

    def result(self) -> list[Size | Flaw]:
        """The sizes, as `ImageFolder.sizes` returns them. If the process has ended, they are read in this one."""
        if self._lines is not None:
            with suppress(Ended):
                answer: list[Any] = self._lines.receive()
                return [cast(Flaw, size) if isinstance(size, str) else (size[0], size[1]) for size in answer]
        return self._folder.sizes(self._names_N)

    def __enter__(self) -> Prober:
        return self

    def __exit__(self, *details: object) -> None:
        if self._lines is not None:
            self._lines.channel.kill()


def serve() -> None:
    """Answer each line of stdin, which is a socket, with a line: names with their sizes. The argument is the folder."""
    folder = ImageFolder(Path(sys.argv[1]))
    answers = os.fdopen(os.dup(0), "w", encoding="utf-8")
    for line in sys.stdin:
        print(json.dumps(folder.sizes(json.loads(line))), file=answers, flush=True)


__all__ = ["Flaw", "ImageFolder", "Prober", "Size", "serve"]
