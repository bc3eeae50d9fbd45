"""What a data set states about its recorded episodes, which `rlcore_gui.prepare.pipeline` completes and writes.

Axes: ``N`` the steps of some episodes, in order; ``B`` all boxes of these steps, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rlcore_gui.prepare.json_stream import items
from rlcore_gui.prepare.screenshots import Flaw, Size

Floats = npt.NDArray[np.float64]


class UnreadableEpisode(ValueError):
    """An item of a source file that is no episode. The text is a short reason, which is counted."""


@dataclass(slots=True, kw_only=True)
class SourceEpisode:
    """One recorded episode."""

    id: str
    group: str
    """What metrics are grouped by."""
    stratum: str
    """What a subset has in the same shares as the whole."""
    steps: Sequence[Any]
    """In the form that `Source.columns` takes."""
    images: Sequence[str | None]
    """The name of each step's screenshot in the folder of images."""


@dataclass(slots=True, kw_only=True)
class Columns:
    """What the steps of some episodes are."""

    index_N: list[int]
    """The step's number in its episode, as the source states it."""
    task_N: list[str]
    action_N: list[str]
    """Names of the action table; empty if unknown."""
    value_N: list[str | None]
    position_N2: Floats
    """``(x, y)``, not a number for actions without a position."""
    boxes_B4: Floats
    """``(y, x, height, width)``, relative to the screenshot."""
    boxes_N: npt.NDArray[np.int64]
    """The number of boxes of each step."""
    flaw_N: list[str | None]
    """Why a step cannot be a row; None if it can."""
    source: pa.StructArray
    """What matching needs beyond this, of the type `Source.extra`."""
    notes: Mapping[str, int] = field(default_factory=dict)
    """Numbers of unusual steps that can be rows, for the summary."""


class Source(Protocol):
    """The format of a data set."""

    dataset: str
    """Id of the data set."""
    extra: pa.StructType
    """The type of the column ``source``."""

    def episode(self, key: str | None, item: Any, *, name: str) -> SourceEpisode:
        """Return the episode of an item of a source file.

        Args:
            key: the key of the list that contains the item; None if the file is a list
            item: plain data of JSON
            name: the file without its suffix

        Raises:
            UnreadableEpisode: it is no episode.
        """
        ...

    def columns(self, steps_N: Sequence[Any], sizes_N: Sequence[Size | Flaw]) -> Columns:
        """Return what these steps are. ``sizes_N`` are the sizes of their screenshots."""
        ...


def episodes(
    source: Source,
    paths: Sequence[Path],
    *,
    unreadable: Callable[[str, str], object],
    read: Callable[[int], object] | None = None,
) -> Iterator[SourceEpisode]:
    """Yield the episodes of source files.

    Args:
        source: the format
        paths: the files, in order
        unreadable: called with the reason and the place of an item that is no episode
        read: called with the number of bytes of each block that was read

    Raises:
        DataError: a file cannot be read.
    """
    number = 0
    for path in paths:
        for key, item in items(path, read=read):
            number += 1
            try:
                yield source.episode(key, item, name=path.stem)
            except UnreadableEpisode as error:
                unreadable(str(error), f"{path.stem}, episode {number}")


def step_numbers(stated: Sequence[int]) -> Sequence[int]:
    """The numbers of an episode's steps: as the source states them if they increase from 0 or more, or else counted."""
    if stated[0] >= 0 and all(before < number for before, number in pairwise(stated)):
        return stated
    return range(len(stated))


def points_column(points_N2: Floats) -> pa.FixedSizeListArray:
    """Points as a column. One that is not a number is null."""
    missing = pa.array(~np.isfinite(points_N2).all(axis=1))
    return pa.FixedSizeListArray.from_arrays(pa.array(points_N2.ravel()), 2, mask=missing)


def texts_column(texts_N: Sequence[str | None]) -> pa.StringArray:
    """Texts as a column. Lone surrogates, which files of others can contain, become question marks."""
    try:
        return pa.array(texts_N, pa.string())
    except UnicodeEncodeError:
        return pa.array([text and text.encode("utf-8", "replace").decode() for text in texts_N], pa.string())


__all__ = [
    "Columns",
    "Floats",
    "Source",
    "SourceEpisode",
    "UnreadableEpisode",
    "episodes",
    "points_column",
    "step_numbers",
    "texts_column",
]
