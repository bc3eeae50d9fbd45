"""Trajectories as a parquet file, whose nested columns are JSON texts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from rlcore.errors import DataError, NotInstalledError
from rlcore.export.columns import INDEX, NESTED, OF_REWARD, TEXTS, chat, columns, text
from rlcore.export.selection import Selection
from rlcore.plain_json import plain
from rlcore.plugins.loading import pip_line

ROWS = 256
"""Rows of a row group, which are in memory at once."""


def write(selection: Selection, path: Path) -> None:
    """Write a row for each trajectory. The index is read first, because the columns must be known.

    Raises:
        NotInstalledError: pyarrow is missing.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        fix = pip_line(["rlcore-core[parquet]"])
        raise NotInstalledError("parquet files need pyarrow", where="--format parquet", fix=fix) from None
    kinds = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string(), bool: pyarrow.bool_()}
    kinds |= {list: pyarrow.list_(pyarrow.int64())}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in _types(selection).items()])
    rows = _rows(selection)
    try:
        with pyarrow.parquet.ParquetWriter(path, schema) as writer:
            while batch := list(islice(rows, ROWS)):
                writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
    except (pyarrow.ArrowException, OverflowError) as error:
        fix = "remove the index of the step from evidence/; it is then computed from the rollouts"
        raise DataError("a row of the index does not fit its columns", found=str(error), fix=fix) from None


def _types(selection: Selection) -> dict[str, type]:
    rewards, metrics = dict[str, None](), dict[str, None]()
    for row in filter(selection.accepts, selection.rows()):
        rewards.update(dict.fromkeys(row["rewards"]))
        metrics.update(dict.fromkeys(row["metrics"]))
    found = {
        **INDEX,
        **{f"{name}/{id}": kind for id in rewards for name, kind in OF_REWARD.items()},
        **{f"metrics/{name}": float for name in metrics},
        **dict.fromkeys((*TEXTS, *NESTED), str),
    }
    return {plain(name): kind for name, kind in found.items()}


def _rows(selection: Selection) -> Iterator[dict[str, Any]]:
    for one in selection:
        row = {**columns(one), "messages": chat(one.trajectory.messages, str)}
        yield {**row, **{name: text(row[name]) for name in NESTED}}


__all__ = ["write"]
