"""The images of shown rows: drawn by the terminal, or written as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlcore.atomic_files import told
from rlcore.cli.drawing import drawn, protocol
from rlcore.errors import RlcoreError, WriteError
from rlcore.images.encoding import decode_image, open_image
from rlcore.terminal import draw, say

MOST_DRAWN = 12
"""Number of images that a command draws. Further ones are only named."""
SUFFIXES = {"JPEG": ".jpg", "WEBP": ".webp", "BMP": ".bmp", "GIF": ".gif", "TIFF": ".tiff"}

ReadImage = Callable[[str], bytes]
"""Returns the encoded image with a hash; raises `DataError` if there is none."""


class ShownImages:
    """Draws images where the terminal can, and otherwise writes each one once and prints its path."""

    def __init__(self, folder: Path | None, beside: Path | None) -> None:
        """Choose where images go.

        Args:
            folder: the folder that all images are written to, as the user asked; None writes only what is not drawn
            beside: the folder for images that are not drawn; None only names them
        """
        self._folder = folder
        self._beside = beside
        self._how = protocol()
        self._count = 0
        self._written: dict[Path, bool] = {}

    def show(self, sha256: str, read: ReadImage) -> None:
        """Print a line about an image, and draw or write it. A damaged image is named."""
        self._count += 1
        name = sha256[:12]
        try:
            data = read(sha256)
            opened = open_image(data)
            image = decode_image(data)
        except RlcoreError as error:
            say(f"      [image {name}: {str(error).splitlines()[0]}]")
            return
        path = self._path(name, SUFFIXES.get(str(opened.format), ".png"), data)
        draws = self._how is not None and self._count <= MOST_DRAWN
        where = f", {path}" if path else "" if draws else "; --images DIR writes it to a file"
        say(f"      [image {name}, {image.width} x {image.height}{where}]")
        if self._how is not None and draws:
            draw(drawn(image, self._how))

    def _path(self, name: str, suffix: str, data: bytes) -> Path | None:
        """Write an image; returns None if it is only drawn, or the folder beside cannot be written to."""
        folder = self._folder or (None if self._how is not None else self._beside)
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
            self._written[path] = True
        return path


__all__ = ["ReadImage", "ShownImages"]
