"""The images that rows of a data file refer to, in the column ``image`` or ``images``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlcore.data.row_images import COLUMNS, ImageReader
from rlcore.errors import RlcoreError
from rlcore.runs.blobs import BlobStore


class FileImages:
    """Replaces images of rows by their hashes, and keeps the bytes."""

    def __init__(self, folder: Path, others: BlobStore) -> None:
        """Paths in the rows are relative to the folder and must not leave it. ``others`` has all other images."""
        self._reader = ImageReader(folder)
        self._others = others
        self._found: set[str] = set()

    def marked(self, rows: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Rows with ``{"sha256": …}`` for each readable image. Others are left as they are."""
        for row in rows:
            yield {key: self._marked(value) if key in COLUMNS else value for key, value in row.items()}

    def read(self, sha256: str) -> bytes:
        """The bytes of an image. Raises `DataError` if there is none."""
        return self._reader.bytes_of([sha256])[0] if sha256 in self._found else self._others.get(sha256)

    def _marked(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._marked(item) for item in value]
        if not value:
            return value
        try:
            sha256 = self._reader.read(value).sha256
        except RlcoreError:
            return value
        self._found.add(sha256)
        return {"sha256": sha256}


__all__ = ["FileImages"]
