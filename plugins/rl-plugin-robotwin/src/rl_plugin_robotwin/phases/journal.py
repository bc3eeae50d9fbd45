"""What a phase tells: messages by level, and one line in ``episode_metrics.jsonl`` for each round."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlcore.atomic_files import beside
from rlcore.console.terminal import say

from rl_plugin_robotwin.phases.checkpoints import not_written

NAME = "episode_metrics.jsonl"


class Journal:
    """The journal of a process. Only the main process writes files; the others print warnings to stderr.

    Args of the constructor:
        folder: the run directory; None writes nothing
        say: prints a line of the main process
        console_level, file_level: names of levels of the module ``logging``
        process: the index of this process; 0 is the main process
    """

    def __init__(
        self,
        folder: Path | None,
        say: Callable[[str], None],
        *,
        console_level: str,
        file_level: str,
        process: int = 0,
    ) -> None:
        self._folder, self._say, self._process = folder, say, process
        levels = logging.getLevelNamesMapping()
        self._console, self._file = levels[console_level], levels[file_level]
        if process:
            self._console = max(self._console, logging.WARNING)

    def prints(self, level: int) -> bool:
        """Return whether messages of a level are printed."""
        return level >= self._console

    def tell(self, level: int, text: str) -> None:
        """Print a message and write it to ``phase.log``, each if its level is high enough."""
        if self.prints(level):
            if self._process:
                say(f"process {self._process}: {text}", err=True)
            else:
                self._say(text)
        if self._folder is not None and level >= self._file:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S")
            self._append("phase.log", f"{stamp} {logging.getLevelName(level)} {text}\n")

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line to ``episode_metrics.jsonl``."""
        if self._folder is not None:
            self._append(NAME, json.dumps(line) + "\n")

    def rewind(self, episodes: int) -> None:
        """Drop lines after this number of episodes, and incomplete ones, because a resumed run repeats them."""
        if self._folder is None or not (self._folder / NAME).is_file():
            return
        path, kept = self._folder / NAME, []
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                if json.loads(text)["episode"] <= episodes:
                    kept.append(text)
            except (ValueError, KeyError, TypeError):
                continue
        partial = beside(path)
        partial.write_text("".join(f"{text}\n" for text in kept), encoding="utf-8")
        partial.replace(path)

    def _append(self, name: str, text: str) -> None:
        assert self._folder is not None
        try:
            with (self._folder / name).open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise not_written(name, self._folder / name, error) from error
