"""Prepared files: their columns, a writer, and a reader of one episode at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rlcore.atomic_files import beside, whole
from rlcore.errors import DataError, WriteError

from rlcore_gui.actions import Action
from rlcore_gui.prepare.pseudo_labels import TEXTS
from rlcore_gui.steps import Box, GuiStep

FORMAT = "rlcore-gui-steps"
VERSION = 1
_METADATA = b"rlcore"
LABEL = pa.struct([pa.field(name, pa.string(), nullable=False) for name in TEXTS])
REPEATED_TEXTS = ["dataset", "episode_id", "group", "task", "skipped", "action"]
"""Columns that are stored as dictionaries."""
ROWS = 512
"""Rows that are read at a time."""


def schema_of(extra: pa.StructType) -> pa.Schema:
    """The columns of a data set whose source has these additional values. One row is one step of an episode."""

    def required(name: str, kind: pa.DataType) -> pa.Field:
        return pa.field(name, kind, nullable=False)

    return pa.schema(
        [
            required("dataset", pa.string()),
            required("row_id", pa.string()),
            required("episode_id", pa.string()),
            required("step_index", pa.int32()),
            required("group", pa.string()),
            required("task", pa.string()),
            pa.field("image", pa.string()),  # relative to the folder; null if the step is no row
            pa.field("width", pa.int32()),
            pa.field("height", pa.int32()),
            pa.field("skipped", pa.string()),  # why the step is no row
            required("action", pa.string()),
            pa.field("value", pa.string()),
            pa.field("position", pa.list_(pa.float64(), 2)),
            required("boxes", pa.list_(pa.float64())),  # y, x, height, width of each box in turn
            pa.field("memory", pa.string()),
            pa.field("label", LABEL),
            required("is_first", pa.bool_()),
            required("is_last", pa.bool_()),
            pa.field("next_row_id", pa.string()),
            required("source", extra),
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a prepared file comes from."""

    dataset: str
    images: str
    """The folder that the names of its screenshots are relative to."""
    seed: int
    held_out: bool
    """Whether it contains the held-out episodes."""

    def as_metadata(self) -> Mapping[bytes, bytes]:
        """Metadata of the file."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {_METADATA: json.dumps({"format": FORMAT, "version": VERSION, **values}).encode()}

    @classmethod
    def of(cls, schema: pa.Schema) -> Origin | None:
        """The origin that the metadata of a file states; None if it is no prepared file."""
        try:
            values = json.loads((schema.metadata or {})[_METADATA])
            if (values.pop("format"), values.pop("version")) != (FORMAT, VERSION):
                return None
            return cls(**values)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


class StepsWriter:
    """Writes batches to a prepared file."""

    def __init__(self, file: pq.ParquetWriter) -> None:
        self.rows = 0
        """Rows so far, without the steps that are none."""
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch as one row group."""
        if len(batch):
            self.rows += batch["skipped"].null_count
            self._file.write_batch(batch)


@contextmanager
def writing(path: Path, schema: pa.Schema) -> Iterator[StepsWriter]:
    """The writer of a file that appears when the block ends without an error.

    Raises:
        DataError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # by name: a file object of Python would need its lock for each of many small writes
        with (
            whole(path),
            pq.ParquetWriter(beside(path), schema, compression="zstd", use_dictionary=REPEATED_TEXTS) as file,
        ):
            yield StepsWriter(file)
    except WriteError as error:
        fix = "free disk space, grant the permission, or choose another file"
        raise DataError(error.message, found=error.found, fix=fix) from None
    except OSError as error:
        found = error.strerror or str(error)
        raise DataError("the folder of the output cannot be used", found=found, where=str(path.parent)) from None


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


__all__ = ["LABEL", "Origin", "StepsWriter", "origin", "read", "schema_of", "writing"]
