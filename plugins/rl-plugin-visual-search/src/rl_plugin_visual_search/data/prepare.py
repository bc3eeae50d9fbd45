"""``rlcore data prepare visual-search``: questions of any schema as one parquet file with its pictures."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from rlcore import DataError, UserError
from rlcore.atomic_files import whole
from rlcore.console.wording import counted
from rlcore.data.row_images import ImageReader
from rlcore.types import media_hash

from rl_plugin_visual_search.config import PrepareConfig
from rl_plugin_visual_search.data.conversations import is_conversation
from rl_plugin_visual_search.data.files import files_of, folder_of, rows_in
from rl_plugin_visual_search.data.rows import Reason, Row, UnusableRow, row_of

EXAMPLES = 3
"""Unusable rows of each reason that an error names."""


@dataclass(slots=True)
class _Report:
    """Unusable rows by reason."""

    skipped: Counter[Reason] = field(default_factory=Counter)
    examples: dict[Reason, list[str]] = field(default_factory=dict)

    def add(self, error: UnusableRow, where: str) -> None:
        self.skipped[error.reason] += 1
        known = self.examples.setdefault(error.reason, [])
        if len(known) < EXAMPLES:
            known.append(f"{where}: {error.found}")

    def text(self) -> str:
        return "\n".join(
            f"{counted(count, 'row')}, {reason}: {'; '.join(self.examples[reason])}"
            for reason, count in self.skipped.most_common()
        )


def prepare(config: PrepareConfig) -> Mapping[str, object]:
    """Write a parquet file of questions and their pictures, and return a summary.

    Rows are streamed: memory does not grow with the files. With ``subset``, the files are read twice.

    Raises:
        DataError: a file cannot be read, no row can be used, or a row cannot be used and ``strict`` is set.
        UserError: a file exists already, or its folder cannot be created.
    """
    out = _target(config.out, "out", config)
    subset = _target(config.subset, "subset", config) if config.subset is not None else None
    if subset is not None and subset == out:
        raise UserError("out and subset must be different files", found=str(out), fix="change subset")
    held_out = _held_out(config) if subset is not None else set()
    report, pictures = _Report(), set()
    with ExitStack() as stack:
        writer = stack.enter_context(RowWriter.open(stack.enter_context(whole(out))))
        held = stack.enter_context(RowWriter.open(stack.enter_context(whole(subset)))) if subset is not None else None
        for row in _rows(config, report):
            pictures |= {media_hash(image) for image in row.images}
            (held if held is not None and row.id in held_out else writer).write(row)
        if config.strict and report.skipped:
            fix = "correct them, or leave them out with strict=false"
            raise DataError("rows cannot be used", found=report.text(), where=", ".join(config.source), fix=fix)
        if not writer.rows:
            fix = "set a smaller subset_size" if held is not None and held.rows else "give files with questions"
            found = report.text() or "no row is left"
            raise DataError("there is no row to write", found=found, where=", ".join(config.source), fix=fix)
        written = {"held out": f"{counted(held.rows, 'row')} in {subset}"} if held is not None else {}
        skipped = {f"unusable: {reason}": count for reason, count in report.skipped.most_common()}
        return {"pictures": len(pictures), **skipped, **written, "written": f"{counted(writer.rows, 'row')} to {out}"}


def _target(name: str, key: str, config: PrepareConfig) -> Path:
    path = Path(name).expanduser()
    if path.suffix.lower() != ".parquet":
        raise UserError(f"{key} must be a .parquet file", found=name, fix="change its suffix")
    if path.exists() and not config.overwrite:
        raise UserError(f"{key} exists already", found=str(path), fix="choose another name, or set overwrite=true")
    if any(path.resolve() == file.resolve() for source in config.source for file in files_of(source, "source")):
        raise UserError(f"{key} is one of the files of source", found=str(path), fix="choose another name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        found = f"{error.strerror}: {path.parent}"
        raise UserError(f"the folder of {key} cannot be created", found=found, fix=f"change {key}") from None
    return path


def _rows(config: PrepareConfig, report: _Report) -> Iterator[Row]:
    """The usable rows, with ids ``FILE:ROW``. Others are reported."""
    for place, path in enumerate(path for name in config.source for path in files_of(name, "source")):
        folder = folder_of(config.images, path, "images")
        for number, value in rows_in(path):
            try:
                if isinstance(value, UnusableRow):
                    raise value
                if is_conversation(value):
                    raise UnusableRow(Reason.INVALID, "a conversation: data.train reads such files as they are")
                yield row_of(value, f"{place}/{path.name}:{number}", ImageReader(folder))
            except UnusableRow as error:
                report.add(error, f"{path}, row {number}")


def _held_out(config: PrepareConfig) -> set[str]:
    """The ids of the held-out rows: all questions about pictures that are chosen at random."""
    rows = [(row.id, [media_hash(image) for image in row.images]) for row in _rows(config, _Report())]
    leader: dict[str, str] = {}

    def first(picture: str) -> str:
        """The picture that stands for all pictures that questions connect with this one."""
        while (above := leader.setdefault(picture, picture)) != picture:
            leader[picture] = leader[above]
            picture = leader[picture]
        return picture

    for _, pictures in rows:
        for picture in pictures[1:]:
            leader[first(picture)] = first(pictures[0])
    together: dict[str, list[str]] = {}
    for id, pictures in rows:
        together.setdefault(first(pictures[0]), []).append(id)
    order = sorted(together)
    random.Random(config.seed).shuffle(order)
    chosen: set[str] = set()
    for name in order:
        if len(chosen) >= config.subset_size:
            break
        chosen.update(together[name])
    return chosen


BYTES_AT_ONCE = 64_000_000
"""Pictures of a row group, in bytes, after which it is written."""
_TEXTS = pa.list_(pa.string())
SCHEMA = pa.schema(
    [
        ("question", pa.string()),
        ("answer", pa.string()),
        ("aliases", _TEXTS),
        ("options", _TEXTS),
        ("images", pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))),
        ("data_source", pa.string()),
        ("category", pa.string()),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
    ]
)


class RowWriter:
    """Writes rows in groups of limited size."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self.rows = 0
        self._writer = writer
        self._waiting: list[dict[str, Any]] = []
        self._bytes = 0

    @classmethod
    @contextmanager
    def open(cls, file: BinaryIO) -> Iterator[RowWriter]:
        """Write to an open file."""
        with pq.ParquetWriter(file, SCHEMA, compression="zstd") as parquet:
            writer = cls(parquet)
            yield writer
            writer._flush()

    def write(self, row: Row) -> None:
        """Add a row."""
        self.rows += 1
        self._bytes += sum(map(len, row.images))
        self._waiting.append(
            {
                "question": row.question,
                "answer": row.answer,
                "aliases": list(row.aliases),
                "options": list(row.options),
                "images": [{"bytes": image, "path": None} for image in row.images],
                "data_source": row.data_source,
                "category": row.category,
                "prompt": [{"role": role, "content": text} for role, text in row.prompt],
            }
        )
        if self._bytes >= BYTES_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_pylist(self._waiting, schema=SCHEMA))
        self._waiting, self._bytes = [], 0
