"""Trajectories as JSON lines, with images as hashes or as files beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlcore.export.columns import chat, columns, text
from rlcore.export.selection import Selection
from rlcore.images.encoding import image_suffix

ROWS = "trajectories.jsonl"


def write(selection: Selection, path: Path) -> None:
    """Write a line for each trajectory."""
    _write(selection, path, str)


def write_with_media(selection: Selection, folder: Path) -> None:
    """Write the lines, and each image once to the folder ``media``. An image that cannot be read keeps its hash."""
    media = folder / "media"
    media.mkdir()
    written: dict[str, str] = {}

    def url(sha256: str) -> str:
        if sha256 not in written:
            data = selection.image(sha256)
            written[sha256] = sha256
            if data is not None:
                file = media / f"{sha256}{image_suffix(data)}"
                file.write_bytes(data)
                written[sha256] = f"{media.name}/{file.name}"
        return written[sha256]

    _write(selection, folder / ROWS, url)


def _write(selection: Selection, path: Path, url: Callable[[str], str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for one in selection:
            file.write(f"{text({**columns(one), 'messages': chat(one.trajectory.messages, url)})}\n")


__all__ = ["write", "write_with_media"]
