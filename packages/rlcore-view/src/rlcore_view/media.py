"""Pictures: images of messages by their hashes, those of notes, films, and frames of control episodes as PNG."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rlcore.errors import DataError
from rlcore.images.encoding import check_image, encode_image, open_image
from rlcore.json_files import open_regular
from rlcore.plain_json import number
from rlcore.rollouts.records import BlobStore
from rlcore.types import Group, NumberArray
from rlcore.types.arrays import FORMATS

from rlcore_view.errors import NotFoundError

TYPES = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
}
"""Formats that browsers show, with their content types."""
FILMS = {".mp4": "video/mp4", ".webm": "video/webm"}
"""Endings of the names of films, with their content types."""
LARGEST_FILM = 50_000_000
"""Limit of a film in bytes."""
LONGEST_SIDE = 8_000
"""Limit of the sides of a picture in pixels."""
MOST_NUMBERS = 64
"""Numbers of a row that are sent; larger rows are only described."""


_TYPES_BY_HASH: dict[str, str] = {}
"""Images that were checked. The content of a hash does not change."""


def image_of(run: Path, sha256: str) -> tuple[bytes, str]:
    """An image of the rollouts of a run, or of a file in a folder, with its content type.

    Raises:
        DataError: it is missing or damaged, too large, or of a format that browsers do not show.
    """
    data = BlobStore(run / "media").get(sha256)
    if sha256 not in _TYPES_BY_HASH:
        _TYPES_BY_HASH[sha256] = _checked_type(data)
    return data, _TYPES_BY_HASH[sha256]


def made_image(data: bytes) -> tuple[bytes, str]:
    """An encoded image of a plugin, with its content type. Raises as `image_of`."""
    return data, _checked_type(data)


def has_film(run: Path, name: str) -> bool:
    """Whether a run has a file with this name. A path that leaves the run directory is none of its files."""
    if not name.isprintable():
        return False
    path = (run / name).resolve()
    return path.is_file() and path.is_relative_to(run.resolve()) and path.suffix in FILMS


def film_of(run: Path, name: str) -> tuple[bytes, str]:
    """A film of a run, with its content type.

    Raises:
        NotFoundError: there is none.
        DataError: it is too large.
    """
    if not has_film(run, name):
        raise NotFoundError("there is no such film", fix="open the trajectory again")
    with open_regular(run / name) as file:
        data = file.read(LARGEST_FILM + 1)
    if len(data) > LARGEST_FILM:
        raise DataError(f"a film that is shown has at most {LARGEST_FILM:,} bytes", found="more", where=str(run / name))
    return data, FILMS[Path(name).suffix]


def _checked_type(data: bytes) -> str:
    image = open_image(data)
    _check_sides(image.width, image.height)
    if image.format not in TYPES:
        raise DataError("images of this format are not shown", found=image.format, fix=f"use {', '.join(TYPES)}")
    check_image(data)
    return TYPES[image.format]


def _check_sides(width: int, height: int) -> None:
    if max(width, height) > LONGEST_SIDE:
        found = f"{width:,} x {height:,} pixels"
        raise DataError(f"a picture that is shown has at most {LONGEST_SIDE:,} pixels a side", found=found)


def series_of(name: str, array: NumberArray, address: str) -> dict[str, Any]:
    """An array of a control episode: its rows as numbers, the addresses of its pictures, or only its shape.

    Args:
        name: of the array
        array: the array, a row for each decision
        address: of the segment, which begins the addresses of its pictures
    """
    shape, count = array.shape[1:], len(array)
    size = math.prod(shape)
    values: list[list[float | None]] = []
    frames: list[str] = []
    if is_film(array):
        frames = [f"{address}/{quote(name, safe='')}/{row}" for row in range(count)]
    elif size <= MOST_NUMBERS:
        numbers = struct.unpack(f"={count * size}{FORMATS[array.dtype]}", array.data)
        values = [[_rounded(one) for one in numbers[row * size : (row + 1) * size]] for row in range(count)]
    return {"name": name, "shape": list(shape), "values": values, "frames": frames}


def frame_of(group: Group, sibling: int, segment: int, name: str, row: int) -> bytes:
    """A picture of an array as PNG. Raises `NotFoundError` if there is none."""
    trajectory = next((one for one in group.trajectories if one.sibling == sibling), None)
    segments = trajectory.segments if trajectory is not None else ()
    array = segments[segment].arrays.get(name) if segment < len(segments) else None
    if array is None or not is_film(array) or row >= len(array):
        raise NotFoundError("there is no such picture", fix="open the trajectory again")
    return _png(array[row : row + 1])


def is_film(array: NumberArray) -> bool:
    """Whether the rows are pictures: RGB, with the colours first or last."""
    return array.dtype == "uint8" and len(array.shape) == 4 and 3 in (array.shape[1], array.shape[3])


def _png(row: NumberArray) -> bytes:
    from PIL import Image

    last = row.shape[3] == 3
    height, width = row.shape[1:3] if last else row.shape[2:4]
    _check_sides(width, height)
    if not width or not height:
        raise DataError("a picture has pixels", found=f"{width} x {height}")
    if last:
        return encode_image(Image.frombytes("RGB", (width, height), row.data))
    size = width * height
    planes = [Image.frombytes("L", (width, height), row.data[i * size : (i + 1) * size]) for i in range(3)]
    return encode_image(Image.merge("RGB", planes))


def _rounded(value: float) -> float | None:
    """A number with 6 digits, which is more than a curve shows."""
    found = number(value)
    return found if found is None or isinstance(value, int) else float(f"{found:.6g}")


__all__ = ["film_of", "frame_of", "has_film", "image_of", "is_film", "made_image", "series_of"]
