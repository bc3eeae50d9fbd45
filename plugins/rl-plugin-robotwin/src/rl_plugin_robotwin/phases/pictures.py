"""Pictures of predictions next to what really happened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from rlcore.atomic_files import beside

from rl_plugin_robotwin.phases.checkpoints import not_written

Picture = npt.NDArray[np.uint8]
SMALLEST = 160
"""Smaller pictures are enlarged to about this height, in pixels."""
GAP = 4
ROWS = 4
"""Steps in a sample."""


def missing(height: int, width: int) -> Picture:
    """Return the panel that stands for a prediction which failed: empty, crossed out and labelled."""
    image = Image.new("RGB", (width, height), (60, 60, 60))
    draw = ImageDraw.Draw(image)
    draw.line((0, 0, width, height), fill=(220, 60, 60), width=2)
    draw.line((0, height, width, 0), fill=(220, 60, 60), width=2)
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
    """Write panels of a few steps below each other as a PNG file. Raises `WriteError` if it cannot be written."""
    rows = [frames[round(i)] for i in np.linspace(0, len(frames) - 1, min(ROWS, len(frames)))]
    partial = beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.concatenate(rows)).save(partial, format="PNG")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise not_written("the picture", path, error) from error


def finite(predicted: npt.NDArray[Any], error: float) -> Picture | None:
    """Return a prediction, or None if its error is not a finite number."""
    return predicted.astype(np.uint8) if np.isfinite(error) else None
