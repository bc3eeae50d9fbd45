"""Write a prepared file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rlcore.atomic_files import beside, whole
from rlcore.errors import DataError, WriteError

REPEATED_TEXTS = ["dataset", "episode_id", "group", "task", "skipped", "action"]
"""Columns that are stored as dictionaries."""


class StepsFile:
    """A parquet file that appears when the block ends without an error. Batches are written by a thread."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path, self.schema = path, schema
        self.rows = 0
        self._stack = ExitStack()
        self._pending: Future[None] | None = None

    def __enter__(self) -> StepsFile:
        partial = self._stack.enter_context(_replacing(self.path))
        # by name: a file object of Python would need its lock for each of many small writes
        self._file = self._stack.enter_context(
            pq.ParquetWriter(partial, self.schema, compression="zstd", use_dictionary=REPEATED_TEXTS)
        )
        self._pool = self._stack.enter_context(ThreadPoolExecutor(1))
        return self

    def write(self, *batches: pa.RecordBatch) -> None:
        """Write batches as one row group. Waits for earlier ones."""
        batches = tuple(batch for batch in batches if len(batch))
        if self._pending is not None:
            self._pending.result()
            self._pending = None
        if batches:
            table = pa.Table.from_batches(batches).replace_schema_metadata(self.schema.metadata)
            self.rows += table["skipped"].null_count
            self._pending = self._pool.submit(self._file.write_table, table)

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        try:
            if kind is None:
                self.write()
        except BaseException:
            self._stack.__exit__(*sys.exc_info())
            raise
        self._stack.__exit__(kind, *details)  # type: ignore[arg-type]


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """The path of a file that replaces another one when the block ends without an error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path):
            yield beside(path)
    except WriteError as error:
        fix = "free disk space, grant the permission, or choose another file"
        raise DataError(error.message, found=error.found, fix=fix) from None
    except OSError as error:
        found = error.strerror or str(error)
        raise DataError("the folder of the output cannot be used", found=found, where=str(path.parent)) from None


__all__ = ["StepsFile"]
