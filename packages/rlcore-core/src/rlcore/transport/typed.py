"""Values of `rlcore.types` in messages, with their bytes apart."""

from __future__ import annotations

from typing import Any, TypeVar

from rlcore.types import from_json, to_json
from rlcore.types.arrays import FrozenArray

Value = TypeVar("Value")


def sent(value: Any) -> dict[str, Any]:
    """A value as plain data, in which bytes are indices of ``images``."""
    images: list[bytes] = []

    def kept(data: bytes) -> str:
        images.append(data)
        return str(len(images) - 1)

    return {"value": to_json(value, encode_bytes=kept, packed=(FrozenArray,)), "images": images}


def received(kind: type[Value], found: Any) -> Value:
    """The value of what `sent` returned on the other side.

    Raises:
        ValueError: it is another one.
    """
    try:
        return from_json(kind, found["value"], decode_bytes=lambda index: found["images"][int(index)])
    except (LookupError, TypeError) as error:
        raise ValueError(f"no {kind.__name__}: {error}") from None


__all__ = ["received", "sent"]
