"""Files of rows: JSON, JSONL and parquet, given by their path, by their folder, or by a name in the hub's cache."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlcore.errors import DataError, NotInstalledError
from rlcore.json_files import json_lines, open_regular, parse_json, read_text
from rlcore.plugins.loading import pip_line

SUFFIXES = (".jsonl", ".json", ".parquet")
SPLIT_NAMES = {"train": ("train",), "evaluation": ("test", "validation", "valid", "val", "dev", "eval", "evaluation")}
"""Words in the name of a file that say which split it holds. The first word that any file has is used."""
BATCH = 64
"""Rows of a parquet file that are in memory as Python objects at once."""
_BETWEEN = re.compile(r"[\s,]*")
_NAME = re.compile(r"[\w.-]+/[\w.-]+(/[\w./-]+)?")


def data_files(name: str, split: str) -> list[Path]:
    """The files of a split.

    Args:
        name: a file; a folder; or, in the hub's cache, ``OWNER/NAME``, or a folder or a file of it, such as
            ``openai/gsm8k/main``. Nothing is downloaded.
        split: ``train`` or ``evaluation``

    Raises:
        DataError: there is no such file, or no file of a folder is known to belong to the split.
    """
    if split not in SPLIT_NAMES:
        raise DataError("the split must be train or evaluation", found=split)
    path = Path(name).expanduser()
    if not path.exists() and (cached := in_hub_cache(name)) is not None:
        path = cached
    if path.is_file():
        return [path]
    if not path.is_dir():
        if path.suffix.lower() not in SUFFIXES and not may_be_on_hub(name):
            raise _not_supported(path)
        here = "not a regular file" if os.path.lexists(path) else "no such file"
        found = here + (", and no data set in the hub's cache" if may_be_on_hub(name) else "")
        fix = f"correct data.{split}" + (f", or run: {hub_download(name)}" if may_be_on_hub(name) else "")
        raise DataError("a data file is missing", found=found, where=str(path.absolute()), fix=fix)
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    for word in SPLIT_NAMES[split]:
        if named := [file for file in files if re.search(rf"(^|[^a-z]){word}($|[^a-z])", file.stem.lower())]:
            if len(folders := sorted({file.parent for file in named})) > 1:
                parts = ", ".join(str(folder.relative_to(path)) for folder in folders)
                raise DataError(
                    f"the folder has several data sets with a split {word!r}",
                    found=parts,
                    where=str(path),
                    fix=f"name one of them: data.{split}={name}/{folders[0].relative_to(path)}",
                )
            return named
    if split == "train" and files and not any(_names_a_split(file) for file in files):
        return files
    raise DataError(
        f"no file of the folder is named as data for data.{split}",
        found=", ".join(str(file.relative_to(path)) for file in files[:10]) or "no .jsonl, .json or .parquet file",
        where=str(path),
        fix=f"name a file: data.{split}=FILE",
    )


def file_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Each row with its line in the file, or in a parquet file its number from 1. An invalid line is a `DataError`.

    Raises:
        DataError: the file cannot be read.
        NotInstalledError: it is a parquet file, and pyarrow is missing.
    """
    readers = {".jsonl": _jsonl, ".json": _json, ".parquet": _parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise _not_supported(path)
    try:
        yield from reader(path)
    except UnicodeDecodeError as error:
        fix = "convert the file to UTF-8"
        raise DataError("data files must be UTF-8", found=str(error), where=str(path), fix=fix) from None
    except (OSError, ValueError) as error:
        fix = "restore the file, or split it"
        raise DataError("a data file cannot be read", found=str(error), where=str(path), fix=fix) from None


def row_place(path: Path, number: int) -> str:
    """Where a row of `file_rows` stands, for an error message."""
    return f"{path}, {'row' if path.suffix.lower() == '.parquet' else 'line'} {number}"


def _not_supported(path: Path) -> DataError:
    message, fix = "data files must end in .jsonl, .json or .parquet", "rename the file to match its format"
    return DataError(message, found=path.name, where=str(path), fix=fix)


def _names_a_split(file: Path) -> bool:
    words = {word for words in SPLIT_NAMES.values() for word in words}
    return not words.isdisjoint(re.split(r"[^a-z]+", file.stem.lower()))


def may_be_on_hub(name: str) -> bool:
    """Whether a name can be that of a data set of the hub: ``OWNER/NAME``, or a folder or a file of it."""
    return _NAME.fullmatch(name) is not None


def hub_download(name: str) -> str:
    """The command that brings a data set of the hub into its cache."""
    return f"hf download --repo-type dataset {'/'.join(name.split('/')[:2])}"


def in_hub_cache(name: str, revision: str | None = None) -> Path | None:
    """A data set in the hub's cache, or a folder or a file of it; None if there is none.

    Args:
        name: ``OWNER/NAME``, or a folder or a file of it
        revision: a commit, tag or branch; None is ``main``, or else the newest snapshot
    """
    if not may_be_on_hub(name):
        return None
    try:
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        return None
    owner, repository, *inside = name.split("/")
    kept = Path(HF_HUB_CACHE) / f"datasets--{owner}--{repository}"
    reference = kept / "refs" / (revision or "main")
    snapshots = [kept / "snapshots" / reference.read_text("utf-8").strip()] if reference.is_file() else []
    every = sorted((kept / "snapshots").glob("*"), key=lambda folder: -folder.stat().st_mtime)
    snapshots += [folder for folder in every if revision in (None, folder.name)]
    return next((place for folder in snapshots if (place := folder.joinpath(*inside)).exists()), None)


def _jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    with open_regular(path) as file:
        for number, line in json_lines(file):
            text = line.decode("utf-8")
            try:
                row = parse_json(text)
            except ValueError as error:
                row = DataError("each line of a .jsonl file must be valid JSON", found=str(error))
            yield number, row


def _json(path: Path) -> Iterator[tuple[int, Any]]:
    """The items of a JSON list, each with its line number."""
    text, fix = read_text(path), "correct the list, or use the suffix .jsonl if each line is a separate object"
    try:
        rows = parse_json(text)
    except ValueError as error:
        where = f"{path}, line {error.lineno}" if isinstance(error, json.JSONDecodeError) else str(path)
        raise DataError("a .json file must contain one JSON list", found=str(error), where=where, fix=fix) from None
    if not isinstance(rows, list):
        raise DataError("a .json file must contain a list of rows", found=repr(text[:40]), where=str(path), fix=fix)
    decoder, place, line = json.JSONDecoder(), text.index("[") + 1, 1 + text.count("\n", 0, text.index("["))
    for row in rows:
        start = _BETWEEN.match(text, place).end()  # type: ignore[union-attr]
        line += text.count("\n", place, start)
        yield line, row
        _, place = decoder.raw_decode(text, start)
        line += text.count("\n", start, place)


def _parquet(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        fix = pip_line(["rlcore-core[parquet]"])
        raise NotInstalledError("parquet files need pyarrow", where=str(path), fix=fix) from None
    try:
        number = 0
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=BATCH):
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except pyarrow.ArrowException as error:
        fix = "restore the file, or convert it again"
        raise DataError("a data file cannot be read", found=str(error), where=str(path), fix=fix) from None
