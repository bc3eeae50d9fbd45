"""Small pictures of trajectories, for the rows of tables."""

from __future__ import annotations

import io
from collections.abc import Iterable
from contextlib import suppress

from rlcore.errors import RlcoreError
from rlcore.images.encoding import decode_image
from rlcore.rollouts.index import Row
from rlcore.types import Trajectory

from rlcore_view.errors import NotFoundError
from rlcore_view.media import frame_of, image_of, is_film
from rlcore_view.recent import Recent
from rlcore_view.stored import Stored, StoredGroup

SIDE = 96
"""Longest side in pixels: twice that of a row, for screens with two pixels a point."""


def thumbnail(stored: Stored, purpose: str, step: int, group: int, sibling: int) -> bytes:
    """The picture of a trajectory as a small JPEG. It has the first image of its messages, or the end of its film.

    Raises:
        NotFoundError: there is no such trajectory, or it has no picture.
        DataError: its picture is missing or damaged.
    """
    file = stored.file(purpose, step)
    key = (file.path, group, sibling)
    return _SMALL.get(key, [file.path], lambda: _small(_picture(stored, stored.group(file, group), sibling)))


def have_pictures(stored: Stored, rows: Iterable[Row]) -> bool:
    """Whether the first trajectory of any environment has a picture."""
    firsts: dict[str, Row] = {}
    for row in rows:
        firsts.setdefault(row["environment"], row)
    return any(_has_picture(stored, row) for row in firsts.values())


def _has_picture(stored: Stored, row: Row) -> bool:
    with suppress(RlcoreError, FileNotFoundError):
        found = stored.group(stored.file(row["purpose"], row["step"]), row["group"])
        one = _trajectory(found, row["sibling"])
        return _image(one) is not None or _film(one) is not None
    return False


def _picture(stored: Stored, found: StoredGroup, sibling: int) -> bytes:
    one = _trajectory(found, sibling)
    if (sha256 := _image(one)) is not None:
        return image_of(stored.run, sha256)[0]
    film = _film(one)
    if film is None:
        raise NotFoundError("this trajectory has no picture")
    segment, name = film
    return frame_of(found.group, sibling, segment, name, len(one.segments[segment].arrays[name]) - 1)


def _trajectory(found: StoredGroup, sibling: int) -> Trajectory:
    for one in found.group.trajectories:
        if one.sibling == sibling:
            return one
    raise NotFoundError(f"the group has no sibling {sibling}")


def _image(one: Trajectory) -> str | None:
    """The hash of the first image of the messages."""
    messages = (message for turn in one.turns for message in turn.messages)
    return next((sha256 for message in messages for sha256 in message.images), None)


def _film(one: Trajectory) -> tuple[int, str] | None:
    """The last segment that has a film, and the name of its first film."""
    films = [
        (number, name)
        for number, segment in enumerate(one.segments)
        for name, array in segment.arrays.items()
        if is_film(array) and len(array)
    ]
    last = max((number for number, _ in films), default=-1)
    return next(((number, name) for number, name in films if number == last), None)


def _small(data: bytes) -> bytes:
    image = decode_image(data)
    image.thumbnail((SIDE, SIDE))
    written = io.BytesIO()
    image.save(written, format="JPEG", quality=80)
    return written.getvalue()


_SMALL: Recent[bytes] = Recent(4_000)  # of about 3 kB

__all__ = ["have_pictures", "thumbnail"]
