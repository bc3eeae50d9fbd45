"""Several images as one small picture, for tables and notebooks."""

from __future__ import annotations

import io
from collections.abc import Iterable
from itertools import islice

from rlcore.errors import DataError
from rlcore.images.encoding import decode_image

GAP = 4
"""Pixels between images."""


def side_by_side(images: Iterable[bytes], *, side: int = 192, most: int = 4) -> bytes | None:
    """Return at most ``most`` images next to each other as one PNG; None if none of them can be decoded.

    Args:
        images: encoded images; damaged ones are left out
        side: an image with a larger side is reduced to it, in pixels
        most: further images are left out
    """
    small = []
    for data in islice(images, most):
        try:
            image = decode_image(data)
        except DataError:
            continue
        image.thumbnail((side, side))
        small.append(image)
    if not small:
        return None
    from PIL import Image

    width = sum(image.width for image in small) + GAP * (len(small) - 1)
    row = Image.new("RGB", (width, max(image.height for image in small)), "white")
    place = 0
    for image in small:
        row.paste(image, (place, 0))
        place += image.width + GAP
    written = io.BytesIO()
    row.save(written, format="PNG")
    return written.getvalue()
