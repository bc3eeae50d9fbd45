"""The images of a sheet as figures that contain their data."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from rlcore.console.wording import counted
from rlcore.errors import DataError, NotInstalledError
from rlcore.images.encoding import data_uri, decode_image, open_image
from rlcore.sheets.marks import drawn
from rlcore.sheets.notes import Mark

LARGEST_SIDE = 1600
"""Larger images are reduced to this side in pixels."""
KEPT_BYTES = 64_000
"""A PNG or JPEG of at most this size is shown with its own pixels; others become JPEG."""
MOST_BYTES = 24_000_000
"""Limit of the images of a sheet, in bytes. Later images are named, but not shown."""
SMALL_SIDE = 160
"""Images with smaller sides are enlarged, without smoothing."""


class Album:
    """Writes the figures of a sheet, counts the images that it leaves out, and knows whether any has marks."""

    def __init__(self) -> None:
        self.left_out = 0
        self.marked = False
        self._bytes = self._figures = 0
        self._known: dict[str, tuple[str, int, int] | str] = {}

    def figure(self, sha256: str, images: Mapping[str, bytes], marks: Sequence[Mark] = ()) -> str:
        """A thumbnail that fills the window when it is selected, or a box with the reason why there is none.

        The marks are drawn over the image.
        """
        if sha256 not in self._known:
            self._known[sha256] = self._encoded(images.get(sha256))
        shown = self._known[sha256]
        name = sha256[:12] if sha256.isalnum() else "?"
        if isinstance(shown, tuple) and self._bytes + len(shown[0]) > MOST_BYTES:
            self.left_out += 1
            shown = "left out, because the sheet is full"
        if isinstance(shown, str):
            return f'<figure class="missing"><div>{shown}</div><figcaption>{name}</figcaption></figure>'
        uri, width, height = shown
        self._bytes += len(uri)
        self._figures += 1
        self.marked |= bool(marks)
        id, label = f"picture-{self._figures}", f"{width} × {height}"
        small = ' class="small"' if max(width, height) < SMALL_SIDE else ""
        image = f'<img src="{uri}" width="{width}" height="{height}" alt="Image of {width} by {height} pixels">'
        return (
            f'<figure id="{id}"{small}><a href="#{id}" class="open" title="Enlarge">{image}'
            f"{drawn(marks, width, height)}</a>"
            f'<a href="#-" class="close" title="Close">{image_place(label)}</a>'
            f"<figcaption>{label} <code>{name}</code></figcaption></figure>"
        )

    def note(self) -> str:
        """What is left out; empty if nothing is."""
        return f"{counted(self.left_out, 'image')} left out to limit the size of this page" if self.left_out else ""

    def _encoded(self, data: bytes | None) -> tuple[str, int, int] | str:
        """The data URI and the size of an image, or why it cannot be shown."""
        if data is None:
            return "not stored"
        try:
            kind = open_image(data).format
            image = decode_image(data)
        except NotInstalledError:
            return "not shown: pillow is not installed"
        except DataError:
            return "damaged"
        size = image.size
        if kind in ("PNG", "JPEG") and len(data) <= KEPT_BYTES and max(size) <= LARGEST_SIDE:
            return data_uri(data), *size
        image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
        written = io.BytesIO()
        image.save(written, format="JPEG", quality=88)
        return data_uri(written.getvalue()), *size


def image_place(label: str) -> str:
    """The text of the link that closes an enlarged image."""
    return f"<span>{label}, close</span>"


__all__ = ["Album"]
