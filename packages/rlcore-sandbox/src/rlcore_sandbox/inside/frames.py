"""Messages between the host and a session: frames with a kind, a length and a payload, over a stream socket.

A request or a reply is one `TEXT` frame with a JSON object. The `IMAGE` frames that belong to it precede it. Both sides
expect frames that are damaged or too long, and nothing in a frame is ever unpickled or evaluated.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

HEADER = struct.Struct("!cI")
"""Kind and length of the payload in bytes."""
TEXT, IMAGE = b"J", b"I"
_pack, _unpack, _dumps, _loads = HEADER.pack, HEADER.unpack_from, json.dumps, json.loads


class BrokenFrame(Exception):
    """A frame of an unknown kind, one that is too long, or a text that is no JSON object."""


def encode(message: Mapping[str, Any], images: Iterable[bytes] = ()) -> bytes:
    """The frames of a message with its images."""
    text = _dumps(message).encode("ascii")
    parts = [part for image in images for part in (_pack(IMAGE, len(image)), image)]
    return b"".join([*parts, _pack(TEXT, len(text)), text])


class Decoder:
    """Collects messages from the bytes of a stream.

    Args:
        longest_text: the longest `TEXT` payload in bytes
        longest_image: the longest `IMAGE` payload in bytes
        most_images: the most images of one message
    """

    def __init__(self, *, longest_text: int, longest_image: int, most_images: int) -> None:
        self._longest = {TEXT: longest_text, IMAGE: longest_image}
        self._most_images = most_images
        self._buffer = bytearray()
        self._images: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
        """Add bytes, and yield the messages that they complete with their images.

        Raises:
            BrokenFrame: the stream is damaged. Nothing after it can be read.
        """
        buffer = self._buffer
        buffer += data
        while len(buffer) >= HEADER.size:
            kind, length = _unpack(buffer)
            if kind not in self._longest or length > self._longest[kind]:
                raise BrokenFrame(f"a frame of kind {kind!r} with {length} bytes")
            end = HEADER.size + length
            if len(buffer) < end:
                return
            payload = bytes(memoryview(buffer)[HEADER.size : end])
            del buffer[:end]
            if kind == IMAGE:
                self._images.append(payload)
                if len(self._images) > self._most_images:
                    raise BrokenFrame(f"more than {self._most_images} images")
                continue
            images, self._images = self._images, []
            yield _object(payload), images


def read_message(decoder: Decoder, receive: Callable[[], bytes]) -> tuple[dict[str, Any], list[bytes]] | None:
    """Read until one message is complete; None at the end of the stream. For a side that waits for each reply."""
    while data := receive():
        for message in decoder.feed(data):
            return message
    return None


def _object(payload: bytes) -> dict[str, Any]:
    try:
        found = _loads(payload)
    except (ValueError, RecursionError) as error:
        raise BrokenFrame(f"no JSON ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise BrokenFrame("no JSON object")
    return found
