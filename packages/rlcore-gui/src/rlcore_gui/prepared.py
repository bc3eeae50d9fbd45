"""Read prepared files, one episode at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rlcore.errors import DataError

from rlcore_gui.actions import Action
from rlcore_gui.schema import Origin, schema_of
from rlcore_gui.steps import Box, GuiStep

ROWS = 512
"""Rows that are read at a time."""


def origin(path: Path) -> Origin:
    """Where a prepared file comes from.

    Raises:
        DataError: the file cannot be read, or it is no prepared file.
    """
    with _opened(path) as file:
        return _origin(file, path)


def read(path: Path, *, images: Path | None = None) -> Iterator[tuple[GuiStep, ...]]:
    """Yield the steps of each episode, in order. Memory does not grow with the file.

    Steps that are no rows have no image. They count as part of the history.

    Args:
        path: a file of ``rlcore data prepare``
        images: the folder of the screenshots; None uses the folder that the file names

    Raises:
        DataError: the file cannot be read, or it is no prepared file.
    """
    with _opened(path) as file:
        folder = Path(_origin(file, path).images) if images is None else images
        try:
            rows = (row for batch in file.iter_batches(ROWS) for row in batch.to_pylist())
            for _, episode in groupby(rows, key=itemgetter("episode_id")):
                yield tuple(_step(row, folder) for row in episode)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, error) from None


def count_skipped(path: Path) -> int:
    """The number of steps that are no rows. Raises as `read`."""
    with _opened(path) as file:
        _origin(file, path)
        column = file.read(columns=["skipped"])["skipped"]
        return len(column) - int(column.null_count)


def _opened(path: Path) -> pq.ParquetFile:
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        fix = "correct data.train or data.evaluation, or write the file with rlcore data prepare"
        raise DataError("a data file is missing", found=found, where=str(path.absolute()), fix=fix)
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None


def _origin(file: pq.ParquetFile, path: Path) -> Origin:
    found = Origin.of(file.schema_arrow)
    expected = schema_of(pa.struct([])).names
    if found is None or file.schema_arrow.names != expected:
        raise DataError(
            "this is no prepared file of recorded episodes",
            found=", ".join(file.schema_arrow.names)[:200],
            where=str(path),
            fix="write it with rlcore data prepare, which reads the original files",
        )
    return found


def _step(row: Mapping[str, Any], folder: Path) -> GuiStep:
    width, height, position, image = row["width"], row["height"], row["position"], row["image"]
    return GuiStep(
        row_id=row["row_id"],
        episode_id=row["episode_id"],
        step_index=row["step_index"],
        group=row["group"],
        task=row["task"],
        image=folder / image if image is not None else None,
        image_size=(width, height) if width is not None and height is not None else None,
        action=Action(
            name=row["action"], value=row["value"], position=None if position is None else (position[0], position[1])
        ),
        boxes=tuple(_boxes(row["boxes"])),
        memory=row["memory"],
        is_first=row["is_first"],
        is_last=row["is_last"],
        next_row_id=row["next_row_id"],
        source={**row["source"], **({"label": row["label"]} if row["label"] is not None else {})},
    )


def _boxes(flat: list[float]) -> Iterator[Box]:
    for start in range(0, len(flat), 4):
        y, x, height, width = flat[start : start + 4]
        yield y, x, height, width


def _unreadable(path: Path, error: Exception) -> DataError:
    fix = "restore the file, or prepare it again"
    return DataError("the prepared file cannot be read", found=str(error)[:300], where=str(path), fix=fix)


__all__ = ["count_skipped", "origin", "read"]
