"""Write rows as parquet, in the columns that the dataset reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from rl_plugin_visual_search.rows import Row

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


__all__ = ["SCHEMA", "RowWriter"]
