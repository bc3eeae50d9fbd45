"""Messages between two processes: a fixed header, a JSON text, and the bytes of small arrays.

Large arrays are in shared memory (`SharedArrays`). Lengths are limited, nothing is unpickled, and both sides expect
messages that are damaged, too long or of another version.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Iterable, NamedTuple

VERSION = 1
"""The version of the messages. Both sides must have the same one."""
MAGIC = b"rlct"
HEADER = struct.Struct("!4sHIIQ")
"""Magic, version, bytes of the text, bytes of the inline arrays, bytes of the shared arrays."""
LONGEST_TEXT = 16 * 2**20
"""Limit of the JSON text in bytes."""
MOST_VALUES = 500_000
"""Limit of the brackets and commas of a JSON text, which bounds its values: reading them blocks the other threads."""
MOST_INLINE = 64 * 2**10
"""Limit of the arrays within a message in bytes. Larger ones are shared."""
MOST_SHARED = 2**30
"""Limit of the shared arrays of a message in bytes, and of its inline arrays if the two sides share no memory."""
ALIGNMENT = 16
"""Text and arrays have a multiple of this length in bytes, so that arrays can be used where they were received."""


class BrokenMessage(Exception):
    """Bytes that are not a message of this version, or one that is too long."""


class Header(NamedTuple):
    """The lengths of a message, in bytes."""

    text: int
    inline: int
    shared: int

    @property
    def follows(self) -> int:
        """Bytes that follow the header in the stream."""
        return self.text + self.inline


def aligned(size: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def pack(value: Any, buffers: Iterable[tuple[int, Any]] = (), inline: int = 0, shared: int = 0) -> bytearray:
    """The bytes of a message.

    Args:
        value: what `json.dumps` accepts
        buffers: offsets and bytes of the arrays within the message
        inline: bytes of these arrays together
        shared: bytes of the arrays in shared memory

    Raises:
        ValueError: it is too long.
    """
    text = json.dumps(value).encode("ascii")
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"a message has {len(text)} bytes of text, the limit is {LONGEST_TEXT}")
    if _most_values(text) > MOST_VALUES:
        raise ValueError(f"a message has {_most_values(text)} brackets and commas, the limit is {MOST_VALUES}")
    length = aligned(len(text))
    start = HEADER.size + length
    message = bytearray(start + inline)
    HEADER.pack_into(message, 0, MAGIC, VERSION, length, inline, shared)
    message[HEADER.size : start] = text.ljust(length)
    for offset, data in buffers:
        message[start + offset : start + offset + len(data)] = data
    return message


def _most_values(text: bytes) -> int:
    """At least the number of values in a JSON text. Brackets and commas inside its strings count, too."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def unpack_header(data: bytes | bytearray | memoryview, most_inline: int = MOST_INLINE) -> Header:
    """The lengths of a message, from its first `HEADER.size` bytes.

    Raises:
        BrokenMessage: they are no header, or of another version, or a length is above its limit.
    """
    magic, version, text, inline, shared = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise BrokenMessage(f"expected a message, found the bytes {bytes(data[: HEADER.size])!r}")
    if version != VERSION:
        raise BrokenMessage(f"expected messages of version {VERSION}, found version {version}")
    for name, length, limit in (
        ("text", text, LONGEST_TEXT),
        ("inline arrays", inline, most_inline),
        ("shared arrays", shared, MOST_SHARED),
    ):
        if length > limit:
            raise BrokenMessage(f"a message with {length} bytes of {name}, the limit is {limit}")
    return Header(text, inline, shared)


def unpack_text(data: Any) -> Any:
    """The value of a JSON text.

    Raises:
        BrokenMessage: it is not JSON, or has too many values.
    """
    text = bytes(data)
    if _most_values(text) > MOST_VALUES:
        raise BrokenMessage(f"a message with {_most_values(text)} brackets and commas, the limit is {MOST_VALUES}")
    try:
        return json.loads(str(text, "ascii"))
    except (ValueError, RecursionError) as error:
        raise BrokenMessage(f"a message whose text is not JSON: {str(error)[:200]}") from None
