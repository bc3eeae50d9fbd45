"""The checks of what a session sent, which code may have forged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlcore.errors import DataError
from rlcore.images.encoding import check_image, open_image
from rlcore.types import SandboxLimits

from rlcore_sandbox.inside.output import cut

MOST_CHUNKS = 10_000
"""Chunks of a PNG file. Reading millions of empty ones would take the host minutes."""


def reply_fields(message: Mapping[str, Any], limits: SandboxLimits) -> dict[str, Any]:
    """The fields of a `rlcore.types.CodeResult` that a reply has.

    Raises:
        ValueError: they are not those that a session sends.
    """
    ok, omitted = message.get("ok"), message.get("omitted")
    value, error = (checked_text(message.get(name), limits) for name in ("value", "error"))
    if type(ok) is not bool or ok == bool(error):
        raise ValueError("the status of a reply")
    if type(omitted) is not int or not 0 <= omitted < 2**31:
        raise ValueError("the number of omitted images")
    return {"status": "ok" if ok else "error", "value": value, "error": error, "omitted_images": omitted}


def checked_text(text: object, limits: SandboxLimits) -> str:
    """A text without lone surrogates, within the limit.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(text, str):
        raise ValueError("a text of a reply")
    return cut(text.encode("utf-8", "replace").decode("utf-8"), limits.output_characters)


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


__all__ = ["check_pictures", "checked_text", "reply_fields"]
