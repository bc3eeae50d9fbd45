"""Values to and from the messages of a stream. The caller moves the bytes."""

from __future__ import annotations

from typing import Any, Callable

from .messages import HEADER, MOST_INLINE, MOST_SHARED, BrokenMessage, Header, pack, unpack_header, unpack_text
from .shared_arrays import SharedArrays
from .values import NotSendable, Parts, decode, encode

BUFFER = 64 * 2**10
"""Bytes that are received at once: mostly a whole message."""

GROWTH = 2**20
"""Bytes for which memory is allocated at a time."""


def message_of(value: Any, memory: SharedArrays | None = None) -> bytearray:
    """The bytes of a message. Large arrays are written to the shared memory, if there is one.

    Raises:
        NotSendable: the value cannot be sent, or is too large.
    """
    parts = Parts()
    tree = encode(value, parts)
    if parts.size > MOST_SHARED:
        raise NotSendable(f"the value has {parts.size} bytes of arrays, the limit is {MOST_SHARED}")
    try:
        if memory is not None and parts.size > MOST_INLINE:
            memory.write(parts.buffers, parts.size)
            return pack(tree, shared=parts.size)
        return pack(tree, parts.buffers, inline=parts.size)
    except ValueError as error:
        raise NotSendable(str(error)) from None


class Receiver:
    """Receives messages, each with as few system calls as possible.

    Args:
        memory: the shared memory; None for messages over a network
    """

    def __init__(self, memory: SharedArrays | None = None) -> None:
        self._memory = memory
        self._buffer = memoryview(bytearray(BUFFER))

    def receive(self, read_into: Callable[[memoryview], int]) -> Any:
        """The value of the next message.

        Args:
            read_into: waits for bytes, writes them to the beginning of a buffer, and returns their number

        Raises:
            BrokenMessage, EOFError: the message is damaged, or more bytes follow it.
        """
        count = 0
        while count < HEADER.size:
            count += read_into(self._buffer[count:])
        header = unpack_header(self._buffer, MOST_SHARED if self._memory is None else MOST_INLINE)
        here = self._buffer[HEADER.size : count]
        if len(here) > header.follows:
            raise BrokenMessage("bytes that were not asked for")
        rest = bytearray(here)  # of its own: arrays keep it
        while len(rest) < header.follows:  # it grows with what arrives
            start = len(rest)
            rest.extend(bytes(min(GROWTH, header.follows - start)))
            left = memoryview(rest)[start:]
            while len(left):
                left = left[read_into(left) :]
            del left  # it would keep the length
        return self._value(header, memoryview(rest))

    def _value(self, header: Header, rest: memoryview) -> Any:
        tree = unpack_text(rest[: header.text])
        if not header.shared:
            return decode(tree, rest[header.text :])
        if self._memory is None:
            raise BrokenMessage("shared arrays, but there is no shared memory")
        return decode(tree, self._memory.read(header.shared))


__all__ = ["Receiver", "message_of"]
