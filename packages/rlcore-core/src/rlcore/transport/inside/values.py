"""Values as JSON, with their arrays and bytes apart.

None, booleans, numbers, texts, bytes, lists, tuples, dictionaries, and arrays and scalars of numpy are sent. Tensors
become arrays. An object that is a tagged value in JSON has the key ``$``.
"""

from __future__ import annotations

import math
import re
import sys
from typing import Any, Callable

from .messages import BrokenMessage, aligned

TAG = "$"
MOST_DEPTH = 40
"""Limit of nested lists and dictionaries."""
MOST_AXES = 32
DTYPE = re.compile(r"[<>|][biufc](?:1|2|4|8|16)")
"""Types of the elements of arrays: booleans (``|b1``) and numbers."""
PLAIN: tuple[tuple[Any, Callable[[Any], Any]], ...] = ((str, str.__str__), (int, int), (float, float))
"""Base classes of values such as members of an enum, and how they become plain."""


class NotSendable(Exception):
    """A value of another type. The message has its place in the whole value."""


class Parts:
    """The bytes of arrays and texts of bytes, in order."""

    def __init__(self) -> None:
        self.buffers: list[tuple[int, Any]] = []
        """Offset and bytes-like object of each."""
        self.size = 0

    def add(self, data: Any, size: int) -> int:
        """Add a buffer, and return its offset."""
        offset = self.size
        if size:
            self.buffers.append((offset, data))
            self.size = offset + aligned(size)
        return offset


def encode(value: Any, parts: Parts, place: str = "", depth: int = 0) -> Any:
    """The JSON of a value. The bytes of its arrays are added to ``parts``.

    Raises:
        NotSendable: a part is of another type, or nested too deeply.
    """
    kind = type(value)
    if value is None or kind is bool or kind is int or kind is float or kind is str:
        return value
    if depth > MOST_DEPTH:
        raise NotSendable(f"{place or 'it'} has more than {MOST_DEPTH} nested lists and dictionaries")
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = memoryview(value).cast("B") if not isinstance(value, bytes) else value
        return {TAG: "bytes", "at": parts.add(data, len(data)), "size": len(data)}
    if isinstance(value, dict):
        plain = all(type(key) is str and key != TAG for key in value)
        if plain:
            return {key: encode(item, parts, place + "." + key, depth + 1) for key, item in value.items()}
        items = [
            [encode(key, parts, place + " (a key)", depth + 1), encode(item, parts, f"{place}[{key!r}]", depth + 1)]
            for key, item in value.items()
        ]
        return {TAG: "dict", "items": items}
    if isinstance(value, (list, tuple)):
        rows = [encode(item, parts, f"{place}[{index}]", depth + 1) for index, item in enumerate(value)]
        return rows if isinstance(value, list) else {TAG: "tuple", "items": rows}
    for base, plainly in PLAIN:
        if isinstance(value, base) and not hasattr(value, "dtype"):
            return plainly(value)
    return _encode_array(value, parts, place)


def _encode_array(value: Any, parts: Parts, place: str) -> Any:
    array = _as_array(value)
    if array is None:
        raise NotSendable("{} is a {}, which cannot be sent".format(place.lstrip(".") or "it", _name(type(value))))
    if array.dtype.byteorder == ">" or not array.flags.c_contiguous:
        import numpy

        array = numpy.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(array.shape)
    dtype = array.dtype.str
    if not DTYPE.fullmatch(dtype) or array.ndim > MOST_AXES:
        raise NotSendable("{} is an array of {}, which cannot be sent".format(place.lstrip(".") or "it", array.dtype))
    data = memoryview(array.reshape(-1)).cast("B") if array.size else b""
    tagged = {TAG: "array", "dtype": dtype, "shape": list(array.shape), "at": parts.add(data, len(data))}
    if _is_scalar(value):
        tagged["scalar"] = True
    return tagged


def _is_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def _as_array(value: Any) -> Any:
    """An array of numpy; None for other objects. Only what has an array form imports numpy."""
    if isinstance(value, type) or not (hasattr(value, "__array__") or hasattr(value, "__array_interface__")):
        return None
    try:
        import numpy

        if hasattr(value, "detach") and hasattr(value, "cpu"):
            value = value.detach().cpu()
        return numpy.asarray(value)
    except Exception:
        return None


def _name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def decode(value: Any, data: Any) -> Any:
    """The inverse of `encode`. The arrays have their memory in ``data``, and are writable if it is.

    Raises:
        BrokenMessage: a tagged value is damaged, or outside of ``data``.
    """
    try:
        return _decode(value, Received(memoryview(data).cast("B") if len(data) else memoryview(b"")), 0)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BrokenMessage(f"a damaged value: {type(error).__name__}: {str(error)[:200]}") from None


class Received:
    """The bytes of the arrays of a message. Each part follows the one before, so all together are not larger."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._end = view, 0

    def part(self, at: Any, size: Any) -> memoryview:
        """The next part.

        Raises:
            BrokenMessage: it begins before the end of the last one, or is outside of the message.
        """
        if not _is_count(at) or not _is_count(size) or (size and not self._end <= at <= len(self._view) - size):
            raise BrokenMessage(f"{size!r:.80} bytes at {at!r:.80} of {len(self._view)}, after byte {self._end}")
        self._end = at + size if size else self._end
        return self._view[at : at + size] if size else self._view[:0]


def _decode(value: Any, data: Received, depth: int) -> Any:
    if depth > 2 * MOST_DEPTH:
        raise BrokenMessage(f"a value with more than {2 * MOST_DEPTH} nested lists and objects")
    if isinstance(value, list):
        return [_decode(item, data, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: _decode(item, data, depth + 1) for key, item in value.items()}
    reader = READERS.get(value[TAG]) if isinstance(value[TAG], str) else None
    if reader is None:
        raise BrokenMessage(f"a value of the unknown kind {value[TAG]!r:.80}")
    return reader(value, data, depth)


def _bytes(value: dict[str, Any], data: Received, depth: int) -> bytes:
    return bytes(data.part(value["at"], value["size"]))


def _dict(value: dict[str, Any], data: Received, depth: int) -> Any:
    return {_decode(key, data, depth + 1): _decode(item, data, depth + 1) for key, item in value["items"]}


def _tuple(value: dict[str, Any], data: Received, depth: int) -> Any:
    return tuple(_decode(item, data, depth + 1) for item in value["items"])


def _array(value: dict[str, Any], data: Received, depth: int) -> Any:
    dtype, shape = value["dtype"], value["shape"]
    if not isinstance(dtype, str) or not DTYPE.fullmatch(dtype):
        raise BrokenMessage(f"an array of the type {dtype!r:.80}")
    if not isinstance(shape, list) or len(shape) > MOST_AXES or not all(_is_count(length) for length in shape):
        raise BrokenMessage(f"an array of the shape {shape!r:.80}")
    try:
        import numpy
    except ImportError:
        raise BrokenMessage("an array, and numpy is not installed on this side: pip install numpy") from None
    kind = numpy.dtype(dtype)
    part = data.part(value["at"], math.prod(shape) * kind.itemsize)
    if kind.kind == "b":  # other bytes than 0 and 1 are no booleans
        array = numpy.frombuffer(part, dtype=numpy.uint8).reshape(shape) != 0
    else:
        array = numpy.frombuffer(part, dtype=kind).reshape(shape)
    return array[()] if value.get("scalar") is True and not shape else array


READERS: dict[str, Callable[[dict[str, Any], Received, int], Any]] = {
    "bytes": _bytes,
    "dict": _dict,
    "tuple": _tuple,
    "array": _array,
}


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**48
