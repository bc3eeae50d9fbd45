"""The images of a sheet with their data, and the marks over them.

Marks are rings where an answer was expected, crosses where it was given, and boxes: shapes as well as colours tell the
two apart.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from rlcore.console.escaping import printable
from rlcore.console.wording import counted
from rlcore.errors import DataError, NotInstalledError
from rlcore.images.encoding import data_uri, decode_image, open_image
from rlcore.report.notes import Mark

LARGEST_SIDE = 1600
"""Larger images are reduced to this side in pixels."""
KEPT_BYTES = 64_000
"""A PNG or JPEG of at most this size is shown with its own pixels; others become JPEG."""
MOST_BYTES = 24_000_000
"""Limit of the images of a sheet, in bytes. Later images are named, but not shown."""
SMALL_SIDE = 160
"""Images with smaller sides are enlarged, without smoothing."""
RADIUS = 0.028
"""Of a ring, as a fraction of the longer side of the image."""
MOST_MARKS = 64
LONGEST_LABEL = 120


class Album:
    """Prepares the figures of a sheet, counts the images that it leaves out, and knows whether any has marks."""

    def __init__(self) -> None:
        self.left_out = 0
        self.marked = False
        self._bytes = self._figures = 0
        self._known: dict[str, tuple[str, int, int] | str] = {}

    def figure(self, sha256: str, images: Mapping[str, bytes], marks: Sequence[Mark] = ()) -> dict[str, Any]:
        """What the template shows of an image: its data and its marks, or the reason why it is ``missing``."""
        if sha256 not in self._known:
            self._known[sha256] = self._encoded(images.get(sha256))
        shown = self._known[sha256]
        name = sha256[:12] if sha256.isalnum() else "?"
        if isinstance(shown, tuple) and self._bytes + len(shown[0]) > MOST_BYTES:
            self.left_out += 1
            shown = "left out, because the sheet is full"
        if isinstance(shown, str):
            return {"missing": shown, "name": name}
        uri, width, height = shown
        self._bytes += len(uri)
        self._figures += 1
        self.marked |= bool(marks)
        return {
            "missing": "",
            "name": name,
            "id": f"picture-{self._figures}",
            "uri": uri,
            "width": width,
            "height": height,
            "small": max(width, height) < SMALL_SIDE,
            "marks": _drawn(marks, width, height),
        }

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


def _drawn(marks: Sequence[Mark], width: int, height: int) -> list[dict[str, Any]]:
    """The shapes of marks in pixels of the image. Expected marks are below given ones."""
    ordered = sorted(marks[:MOST_MARKS], key=lambda mark: mark.kind)
    return [
        {
            "label": printable(mark.label[:LONGEST_LABEL]),
            "kind": "expected" if mark.kind == "expected" else "given",
            "shapes": _shapes(mark, width, height),
        }
        for mark in ordered
    ]


def _shapes(mark: Mark, width: int, height: int) -> list[tuple[str, dict[str, str]]]:
    found = []
    if mark.box is not None:
        left, top, right, bottom = (_kept(fraction) for fraction in mark.box)
        size = {"width": max(0.0, right - left) * width, "height": max(0.0, bottom - top) * height}
        box = {"x": left * width, "y": top * height, **size}
        found.append(("rect", {name: f"{value:.1f}" for name, value in box.items()}))
    if mark.point is not None:
        x, y, radius = _kept(mark.point[0]) * width, _kept(mark.point[1]) * height, RADIUS * max(width, height)
        if mark.kind == "expected":
            found.append(("circle", {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": f"{radius:.1f}"}))
        else:
            arm = 0.75 * radius
            west, east, north, south = (f"{place:.1f}" for place in (x - arm, x + arm, y - arm, y + arm))
            found.append(("path", {"d": f"M{west} {north}L{east} {south}M{west} {south}L{east} {north}"}))
    return found


def _kept(fraction: float) -> float:
    """A coordinate, at most at the edge of the image."""
    return min(1.0, max(0.0, float(fraction)))


__all__ = ["Album"]
