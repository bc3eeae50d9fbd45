"""Read the sizes of screenshots in a second process, while this one parses and writes.

Opening a file takes as long as parsing its step, and threads of one process would wait for each other.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from rlcore_gui.screenshots import Flaw, ImageFolder, Size

COMMAND = "from rlcore_gui.probing import serve; serve()"
FAILURES = (OSError, ValueError)
"""What is raised when the process has ended."""


class Prober:
    """Reads the sizes of several screenshots at a time. Between `begin` and `result`, the caller may do other work."""

    def __init__(self, folder: ImageFolder, *, process: bool = True) -> None:
        """Start the process, unless there are too few screenshots for one."""
        self._folder = folder
        self._names_N: Sequence[str | None] = ()
        self._asked = False
        self._process: subprocess.Popen[bytes] | None = None
        if process:
            pipe = subprocess.PIPE
            command = [sys.executable, "-P", "-c", COMMAND, str(folder.path)]  # no modules of the current folder
            with suppress(OSError):
                self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)

    def begin(self, names_N: Sequence[str | None]) -> None:
        """Begin with these screenshots."""
        self._names_N, self._asked = names_N, False
        if self._process is not None and self._process.stdin is not None:
            with suppress(*FAILURES):
                self._process.stdin.write(json.dumps(names_N).encode() + b"\n")
                self._process.stdin.flush()
                self._asked = True

    def result(self) -> list[Size | Flaw]:
        """The sizes, as `ImageFolder.sizes` returns them. If the process has ended, they are read in this one."""
        if self._asked and self._process is not None and self._process.stdout is not None:
            with suppress(*FAILURES):
                answer: list[Any] = json.loads(self._process.stdout.readline())
                if len(answer) == len(self._names_N):
                    return [cast(Flaw, size) if isinstance(size, str) else (size[0], size[1]) for size in answer]
        return self._folder.sizes(self._names_N)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            with suppress(*FAILURES):
                self._process.communicate()


@contextmanager
def prober(folder: ImageFolder, *, process: bool) -> Iterator[Prober]:
    """A prober for a block, with or without a process."""
    opened = Prober(folder, process=process)
    try:
        yield opened
    finally:
        opened.close()


def serve() -> None:
    """Answer each line of stdin, a list of names, with a line of their sizes. The argument is the folder."""
    folder, pipe = ImageFolder(Path(sys.argv[1])), sys.stdout.buffer
    with suppress(BrokenPipeError, KeyboardInterrupt):
        for line in sys.stdin:
            pipe.write(json.dumps(folder.sizes(json.loads(line))).encode() + b"\n")
            pipe.flush()


__all__ = ["Prober", "prober", "serve"]
