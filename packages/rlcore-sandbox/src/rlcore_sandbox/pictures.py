"""The check of images from sessions, which may be forged."""

from __future__ import annotations

from collections.abc import Iterable

from rlcore.errors import DataError
from rlcore.images.encoding import check_image, open_image

MOST_CHUNKS = 10_000
"""Chunks of a PNG file. Reading millions of empty ones would take the host minutes."""


def check_pictures(images: Iterable[bytes], pixels: int) -> None:
    """Decode images that a session sent.

    Args:
        images: encoded
        pixels: of each at most

    Raises:
        DataError: one is not a PNG file, is damaged or exceeds a limit.
    """
    for data in images:
        if not _has_few_chunks(data):
            raise DataError(f"an image of a sandbox must have at most {MOST_CHUNKS:,} chunks")
        image = open_image(data)
        if image.format != "PNG" or image.width * image.height > pixels:
            raise DataError("an image of a sandbox must be a PNG within the limit of pixels")
        check_image(data)


def _has_few_chunks(data: bytes) -> bool:
    place = 8
    for _ in range(MOST_CHUNKS):
        if place >= len(data):
            return True
        place += 12 + int.from_bytes(data[place : place + 4])
    return False


__all__ = ["check_pictures"]
