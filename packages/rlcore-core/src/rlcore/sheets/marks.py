"""Marks over the images of a sheet: rings where an answer was expected, crosses where it was given, and boxes.

Shapes as well as colours tell the two apart.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from rlcore.console.escaping import printable
from rlcore.sheets.notes import Mark

RADIUS = 0.028
"""Of a ring, as a fraction of the longer side of the image."""
MOST_MARKS = 64
LONGEST_LABEL = 120


def drawn(marks: Sequence[Mark], width: int, height: int) -> str:
    """The marks as a drawing of the image's size; empty without marks. Expected marks are below given ones."""
    if not marks:
        return ""
    shapes = [_shape(mark, width, height) for mark in sorted(marks[:MOST_MARKS], key=lambda mark: mark.kind)]
    return f'<svg class="marks" viewBox="0 0 {width} {height}">{"".join(shapes)}</svg>'


def _shape(mark: Mark, width: int, height: int) -> str:
    parts = []
    if mark.box is not None:
        left, top, right, bottom = (_kept(fraction) for fraction in mark.box)
        size = f'width="{max(0.0, right - left) * width:.1f}" height="{max(0.0, bottom - top) * height:.1f}"'
        parts.append(f'<rect class="KIND" x="{left * width:.1f}" y="{top * height:.1f}" {size}/>')
    if mark.point is not None:
        x, y, radius = _kept(mark.point[0]) * width, _kept(mark.point[1]) * height, RADIUS * max(width, height)
        if mark.kind == "expected":
            parts.append(f'<circle class="KIND" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>')
        else:
            arm = 0.75 * radius
            down = f"M{x - arm:.1f} {y - arm:.1f}L{x + arm:.1f} {y + arm:.1f}"
            parts.append(f'<path class="KIND" d="{down}M{x - arm:.1f} {y + arm:.1f}L{x + arm:.1f} {y - arm:.1f}"/>')
    kind = "expected" if mark.kind == "expected" else "given"
    lines = "".join(part.replace("KIND", "halo") + part.replace("KIND", kind) for part in parts)
    label = f"<title>{html.escape(printable(mark.label[:LONGEST_LABEL]))}</title>" if mark.label else ""
    return f"<g>{label}{lines}</g>"


def _kept(fraction: float) -> float:
    """A coordinate, at most at the edge of the image."""
    return min(1.0, max(0.0, float(fraction)))


__all__ = ["drawn"]
