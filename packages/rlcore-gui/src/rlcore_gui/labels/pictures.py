"""Screenshots as they are sent to a teacher."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

from rlcore.images.encoding import data_uri, decode_image, encode_image, image_size, open_image, orientation


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An encoded image."""

    data: bytes
    size: tuple[int, int]
    """Width and height in pixels."""

    @property
    def uri(self) -> str:
        """The image as a data URI."""
        return data_uri(self.data)


def sent_picture(path: Path, *, max_side: int, quality: int) -> Picture:
    """The JPEG that is sent for a screenshot: at most ``max_side`` pixels high and wide, with this quality.

    Raises:
        DataError: the file is missing or not a readable image.
    """
    data = encode_image(path)
    image = open_image(data)
    if image.format == "JPEG" and max(image.size) <= max_side and orientation(image, data) == 1:
        decode_image(data)
        return Picture(data=data, size=image_size(data))
    drawn = decode_image(data)
    drawn.thumbnail((max_side, max_side))
    written = io.BytesIO()
    drawn.save(written, format="JPEG", quality=quality)
    return Picture(data=written.getvalue(), size=drawn.size)
