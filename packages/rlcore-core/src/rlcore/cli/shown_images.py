"""The images of shown rows, written as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlcore.atomic_files import told
from rlcore.errors import RlcoreError, WriteError
from rlcore.images.encoding import decode_image, open_image
from rlcore.terminal import say

SUFFIXES = {"JPEG": ".jpg", "WEBP": ".webp", "BMP": ".bmp", "GIF": ".gif", "TIFF": ".tiff"}

ReadImage = Callable[[str], bytes]
"""Returns the encoded image with a hash; raises `DataError` if there is none."""


class ShownImages:
    """Writes each image once and prints its path."""

    def __init__(self, folder: Path | None, default: Path | None) -> None:
        """Choose where images go.

        Args:
            folder: the folder that the user asked for
            default: the folder otherwise, which may not be writable; None only names the images
        """
        self._folder = folder
        self._default = default
        self._written: set[Path] = set()

    def show(self, sha256: str, read: ReadImage) -> None:
        """Print a line about an image, and write it. A damaged image is named."""
        name = sha256[:12]
        try:
            data = read(sha256)
            opened = open_image(data)
            image = decode_image(data)
        except RlcoreError as error:
            say(f"      [image {name}: {str(error).splitlines()[0]}]")
            return
        path = self._path(name, SUFFIXES.get(str(opened.format), ".png"), data)
        where = path or "--images DIR writes it to a file"
        say(f"      [image {name}, {image.width} x {image.height}{', ' if path else '; '}{where}]")

    def _path(self, name: str, suffix: str, data: bytes) -> Path | None:
        """Write an image; returns None if there is no folder for it, or the default cannot be written to."""
        folder = self._folder or self._default
        if folder is None:
            return None
        path = folder / f"{name}{suffix}"
        if path not in self._written:
            try:
                with told(path):
                    folder.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data)
            except WriteError:
                if self._folder is not None:
                    raise
                return None
            self._written.add(path)
        return path


__all__ = ["ReadImage", "ShownImages"]
