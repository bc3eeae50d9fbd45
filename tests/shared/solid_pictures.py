"""Small encoded pictures of one colour."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image


def picture(width: int = 64, height: int = 48, color: tuple[int, int, int] = (200, 30, 30), **options: Any) -> bytes:
    """An encoded picture of one colour, with a white pixel in its top left corner."""
    image = Image.new("RGB", (width, height), color)
    image.putpixel((0, 0), (255, 255, 255))
    written = io.BytesIO()
    image.save(written, **{"format": "PNG", **options})
    return written.getvalue()


def opened(data: bytes) -> Image.Image:
    """The decoded picture."""
    return Image.open(io.BytesIO(data)).convert("RGB")
