"""Stored trajectories in the formats of other programs. Each is a module, which imports its library when it writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from rlcore.export import inspect_logs, jsonl, parquet, recordings
from rlcore.export.selection import Selection
from rlcore.export.writing import new_file, new_folder

FORMATS: Mapping[str, Callable[[Selection, Path], None]] = {
    "jsonl": jsonl.write,
    "parquet": parquet.write,
    "inspect": inspect_logs.write,
    "rrd": recordings.write,
}
FOLDERS = ("inspect",)
"""Formats that are a folder."""


def export(selection: Selection, form: str, out: Path, *, media: bool = False) -> None:
    """Write the selected trajectories to a new file or folder, which appears only when it is complete.

    Args:
        selection: what to write
        form: one of `FORMATS`
        out: the path; a folder for `FOLDERS`
        media: make ``out`` a folder with the rows and their images; only for ``jsonl``

    Raises:
        UserError: something cannot be read or written, or a library is not installed.
    """
    write = jsonl.write_with_media if media else FORMATS[form]
    with new_folder(out) if media or form in FOLDERS else new_file(out) as partial:
        write(selection, partial)


__all__ = ["FOLDERS", "FORMATS", "Selection", "export"]
