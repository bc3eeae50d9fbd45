"""The output of a run: on the terminal and in ``output.log``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

from rlcore.atomic_files import told


class Output:
    """Writes lines to the terminal and, once there is a run directory, to its log."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self.log: Path | None = None

    def say(self, text: str, *, styled: str | None = None) -> None:
        """Write one or more lines. ``styled`` is the same text with terminal colours, only for the terminal."""
        stream = self._stream or sys.stdout
        shown = styled if styled is not None and stream.isatty() else text
        try:
            print(shown, file=stream, flush=True)
        except UnicodeEncodeError:
            encoding = stream.encoding or "ascii"
            print(shown.encode(encoding, "replace").decode(encoding), file=stream, flush=True)
        self.note(text)

    def note(self, text: str) -> None:
        """Write only to the log. Raises `UserError` when it is not writable."""
        if self.log is not None:
            with told(self.log), self.log.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text + "\n")
