"""Encoded images of one colour."""

from __future__ import annotations

import io

from PIL import Image


def picture(width: int, height: int, colour: str = "red", kind: str = "PNG") -> bytes:
    """An encoded image of this size in pixels."""
    written = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(written, format=kind)
    return written.getvalue()
