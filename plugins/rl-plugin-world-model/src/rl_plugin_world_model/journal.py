"""What a phase tells: messages, a line in ``episode_metrics.jsonl`` for each round, and pictures of predictions."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from rlcore.atomic_files import beside
from rlcore.console.terminal import say

from rl_plugin_world_model.checkpoints import not_written

NAME = "episode_metrics.jsonl"
Picture = npt.NDArray[np.uint8]
SMALLEST = 160
"""Smaller pictures are enlarged to about this height, in pixels."""
GAP = 4
ROWS = 4
"""Steps in a sample."""
TITLES = ("seen", "real next", "predicted")
TITLE_HEIGHT = 16


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


def missing(height: int, width: int) -> Picture:
    """Return the panel that stands for a prediction which failed: empty, crossed out, and labelled if it is large."""
    image = Image.new("RGB", (width, height), (60, 60, 60))
    draw = ImageDraw.Draw(image)
    draw.line((0, 0, width, height), fill=(220, 60, 60), width=2)
    draw.line((0, height, width, 0), fill=(220, 60, 60), width=2)
    if width >= SMALLEST // 2:
        draw.text((4, 2), "no prediction", fill=(255, 255, 255))
    return np.asarray(image)


def panels(seen: Picture, real: Picture, predicted: Picture | None) -> Picture:
    """Return what was seen, the real next frame and the predicted one side by side, ``[height, width, 3]``.

    Args:
        seen: the picture before the action
        real: the picture after it
        predicted: the prediction of it; None if there is none, which is shown as an empty panel
    """
    factor = max(1, -(-SMALLEST // real.shape[0]))
    large = [one.repeat(factor, 0).repeat(factor, 1) for one in (seen, real)]
    large.append(missing(*large[1].shape[:2]) if predicted is None else predicted.repeat(factor, 0).repeat(factor, 1))
    gap = np.full((large[0].shape[0], GAP, 3), 255, np.uint8)
    return np.concatenate([large[0], gap, large[1], gap, large[2]], 1)


def write_sample(path: Path, frames: Sequence[Picture]) -> None:
    """Write panels of a few steps below their titles, as a PNG file. Raises `WriteError` if it cannot be written."""
    rows = [frames[round(i)] for i in np.linspace(0, len(frames) - 1, min(ROWS, len(frames)))]
    partial = beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.concatenate([_titles(rows[0].shape[1]), *rows])).save(partial, format="PNG")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise not_written("the picture", path, error) from error


def _titles(width: int) -> Picture:
    """Return a bar with the titles of the columns of `panels`."""
    image = Image.new("RGB", (width, TITLE_HEIGHT), (255, 255, 255))
    for column, title in enumerate(TITLES):
        ImageDraw.Draw(image).text((column * (width + GAP) // len(TITLES) + 4, 2), title, fill=(0, 0, 0))
    return np.asarray(image)


def finite(predicted: npt.NDArray[Any], error: float) -> Picture | None:
    """Return a prediction, or None if its error is not a finite number."""
    return predicted.astype(np.uint8) if np.isfinite(error) else None
