"""The output of a run: on the terminal and in ``output.log``."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import TextIO

from rlcore.atomic_files import told
from rlcore.console.escaping import printable
from rlcore.console.terminal import in_notebook, overwrite, say
from rlcore.json_files import open_regular


class Output:
    """Writes lines to the terminal and, once there is a run directory, to its log."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self.log: Path | None = None

    def say(self, *lines: str) -> None:
        """Write lines to the terminal and to the log."""
        say(*lines, stream=self._stream)
        self.note(*lines)

    def update(self, line: str) -> None:
        """Write a line that the next one replaces in a notebook; elsewhere and in the log, lines follow each other."""
        if self._stream is None and in_notebook():
            overwrite(line)
            self.note(line)
        else:
            self.say(line)

    def note(self, *lines: str) -> None:
        """Write lines only to the log. A line break inside a line is escaped.

        Raises:
            UserError: the log is not writable.
        """
        if self.log is not None:
            with told(self.log), self.log.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write("".join(f"{printable(line)}\n" for line in lines))


FAILED, STARTED = "failed: ", "run       "
"""The beginnings of the lines of an error that ended a run, and of a start of a run."""
TAIL = 1 << 16
"""Bytes at the end of a log in which the error is looked for."""


def failure_in(log: Path) -> list[str]:
    """The error at the end of ``output.log`` with which the run ended: its message, then its other lines.

    Empty if the run did not fail, was resumed afterwards, or has no readable log.
    """
    try:
        with open_regular(log) as file:
            file.seek(max(0, log.stat().st_size - TAIL))
            lines = file.read(TAIL).decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    starts = [number for number, line in enumerate(lines) if line.startswith((FAILED, STARTED))]
    if not starts or not lines[starts[-1]].startswith(FAILED):
        return []
    first, *later = lines[starts[-1] :]
    return [first.removeprefix(FAILED), *takewhile(lambda line: line.startswith("    "), later)]
