"""Files of rows: parquet, JSON lists, JSON lines, and folders of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlcore import DataError
from rlcore.data.files import SPLIT_NAMES, data_files, in_hub_cache
from rlcore.json_files import check_depth, json_lines, open_regular, parse_json, read_json

from rl_plugin_visual_search.data.rows import Reason, UnusableRow

SUFFIXES = (".parquet", ".json", ".jsonl")
ROWS_AT_ONCE = 32
"""Rows of a parquet file in memory. Each can have several pictures."""


def files_of(name: str, where: str) -> list[Path]:
    """Return the file with this name, or the files of the folder with this name, in alphabetical order.

    A data set in the hub's cache has the files of a split: the one of the key, or else ``train``.

    Args:
        name: of a file or folder, or in the hub's cache
        where: the configuration key, for messages

    Raises:
        DataError: it does not exist, or has no file of a supported format.
    """
    path = Path(name).expanduser()
    if not path.exists() and in_hub_cache(name) is not None:
        split = where.removeprefix("data.")
        return data_files(name, split if split in SPLIT_NAMES else "train")
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
        if not found:
            raise DataError(f"{where} is a folder without a {_formats()} file", where=str(path), fix="correct the path")
        return found
    if path.suffix.lower() not in SUFFIXES:
        what = f"{where} must be a {_formats()} file, a folder, or a name in the hub's cache"
        raise DataError(what, found=name[:200], fix="convert the file, or run: hf download --repo-type dataset NAME")
    if not path.is_file():
        raise DataError(
            "a data file is missing", found="no such file", where=str(path.absolute()), fix=f"correct {where}"
        )
    return [path]


def folder_of(images: str | None, file: Path, where: str) -> Path:
    """Return the folder that paths of pictures in a file are relative to.

    Args:
        images: the configured folder; None is that of the file
        file: the file of rows
        where: the configuration key, for messages

    Raises:
        DataError: the configured folder does not exist.
    """
    if images is None:
        return file.parent
    folder = Path(images).expanduser()
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        raise DataError(f"{where} must be a folder", found=found, where=str(folder.absolute()), fix=f"correct {where}")
    return folder


def rows_in(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the line or position of each row, from 1, and the row; or an `UnusableRow` for a line of invalid JSON.

    Raises:
        DataError: the file cannot be read, or is no file of rows.
    """
    readers = {".parquet": _parquet, ".json": _json, ".jsonl": _jsonl}
    try:
        yield from readers[path.suffix.lower()](path)
    except (OSError, ValueError) as error:  # ValueError is the base of pyarrow's errors and of invalid UTF-8
        fix = "restore the file, or convert it again"
        raise DataError("a data file cannot be read", found=str(error)[:300], where=str(path), fix=fix) from None


def _parquet(path: Path) -> Iterator[tuple[int, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        number = 0
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except pa.ArrowException as error:
        raise ValueError(str(error)) from None


def _json(path: Path) -> Iterator[tuple[int, Any]]:
    rows = read_json(path)
    if not isinstance(rows, list):
        raise ValueError(f"a .json file must contain a list, not a {type(rows).__name__}")
    check_depth(rows)
    yield from enumerate(rows, start=1)


def _jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    with open_regular(path) as file:
        for number, line in json_lines(file):
            try:
                yield number, parse_json(line.decode("utf-8"))
            except ValueError as error:
                yield number, UnusableRow(Reason.INVALID, f"invalid JSON: {str(error)[:120]}")


def _formats() -> str:
    return f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"


__all__ = ["files_of", "folder_of", "rows_in"]
