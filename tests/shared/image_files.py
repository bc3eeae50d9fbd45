"""Encoded images: of one colour, animated, and of a size that must not be decoded."""

from __future__ import annotations

import io
import struct
import zlib

from PIL import Image


def picture(width: int, height: int, colour: str = "red", kind: str = "PNG") -> bytes:
    """An encoded image of this size in pixels."""
    written = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(written, format=kind)
    return written.getvalue()


def animation() -> bytes:
    """A GIF with two frames."""
    written = io.BytesIO()
    frames = [Image.new("RGB", (30, 30), colour) for colour in ("red", "blue")]
    frames[0].save(written, format="GIF", save_all=True, append_images=frames[1:])
    return written.getvalue()


def huge() -> bytes:
    """A PNG of a few bytes whose header states 60,000 x 60,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(bytes(100)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")
