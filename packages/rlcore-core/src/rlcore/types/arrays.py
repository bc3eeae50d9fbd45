"""Immutable arrays of numbers, each in one block of memory.

A `FrozenArray` is a sequence of Python numbers. A tensor can be created from it without a loop:
``torch.frombuffer(bytearray(ids.memory), dtype=torch.int32)``, or ``numpy.frombuffer(ids.memory, "int32")`` without a
copy. A `NumberArray` has a shape and any type of number; ``numpy.asarray`` views it without a copy.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar, cast, overload

Number = TypeVar("Number", int, bool, float)


class FrozenArray(Sequence[Number], Generic[Number]):
    """A fixed sequence of numbers of one type. A slice shares the memory of the original."""

    __slots__ = ("memory",)

    TYPECODE: ClassVar[str]
    """The type code of the modules ``array`` and ``struct``."""
    PACKED: ClassVar[str]
    """The type code of the numbers in `packed`."""
    memory: memoryview[Any]
    """The numbers, read-only and contiguous."""

    def __init__(self, values: Iterable[Number] = ()) -> None:
        """Copy the numbers. An array of the same type is shared instead.

        Raises:
            TypeError, OverflowError: a value is not a number, or is outside the range of the type.
        """
        if isinstance(values, type(self)):
            self.memory = values.memory
        else:
            self.memory = memoryview(array(self.TYPECODE, values)).toreadonly()

    @classmethod
    def of(cls, values: Iterable[Number]) -> Self:
        """Return an array of this type unchanged, and otherwise a copy of the numbers. Raises as the constructor."""
        return values if type(values) is cls else cls(values)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the array of these bytes, in the machine's byte order, as returned by `tobytes`."""
        found = cls.__new__(cls)
        found.memory = memoryview(data).toreadonly().cast(cls.TYPECODE)  # type: ignore[call-overload]
        return found

    @classmethod
    def zeros(cls, count: int) -> Self:
        """Return an array of this length whose numbers are all 0."""
        return cls.from_bytes(bytes(count * struct.calcsize(cls.TYPECODE)))

    @classmethod
    def joined(cls, parts: Iterable[Iterable[Number]]) -> Self:
        """Concatenate all parts."""
        return cls.from_bytes(b"".join(cls(part).memory for part in parts))

    def tobytes(self) -> bytes:
        """Return the memory as bytes, for dictionary keys and `from_bytes`."""
        return self.memory.tobytes()

    def tolist(self) -> list[Number]:
        """Return a list of Python numbers."""
        found: list[Number] = cast(Any, self.memory.tolist())
        return found

    def packed(self) -> str:
        """The numbers in little-endian order, in base64. Log-probabilities are rounded to float32."""
        return base64.b64encode(_little_endian(array(self.PACKED, self.memory))).decode("ascii")

    @classmethod
    def unpacked(cls, text: str) -> Self:
        """The inverse of `packed`.

        Raises:
            ValueError: the text is not base64 of whole numbers.
        """
        numbers: array[Any] = array(cls.PACKED)
        try:
            numbers.frombytes(base64.b64decode(text, validate=True))
        except binascii.Error as error:
            raise ValueError(f"not base64: {error}") from None
        here: array[Any] = array(cls.PACKED, _little_endian(numbers))
        return cls(here)

    def __len__(self) -> int:
        return len(self.memory)

    def __iter__(self) -> Iterator[Number]:
        return iter(self.tolist())

    @overload
    def __getitem__(self, index: int) -> Number: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> Number | Self:
        if not isinstance(index, slice):
            return cast(Number, self.memory[index])
        found = type(self).__new__(type(self))
        part = self.memory[index]
        found.memory = part if part.c_contiguous else memoryview(part.tobytes()).cast(self.TYPECODE)  # type: ignore[call-overload]
        return found

    def __eq__(self, other: object) -> bool:
        if isinstance(other, type(self)):
            return self.memory == other.memory
        if isinstance(other, (list, tuple)):
            return self.tolist() == list(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.tolist()))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return type(self).from_bytes, (self.tobytes(),)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:8].tolist()))
        return f"{type(self).__name__}([{shown}{', …' if len(self) > 8 else ''}], length {len(self)})"


class TokenIds(FrozenArray[int]):
    """Token ids, 4 bytes each."""

    __slots__ = ()
    TYPECODE = PACKED = "i"


class LossMask(FrozenArray[bool]):
    """A mask of the tokens that the policy sampled, one byte each."""

    __slots__ = ()
    TYPECODE, PACKED = "?", "B"

    def __init__(self, values: Iterable[bool] = ()) -> None:
        if isinstance(values, LossMask):
            self.memory = values.memory
        else:
            self.memory = memoryview(bytes(map(bool, values))).cast("?")


class Logprobs(FrozenArray[float]):
    """Log-probabilities in nats, 8 bytes each, so that the engine's values are preserved exactly."""

    __slots__ = ()
    TYPECODE, PACKED = "d", "f"  # engines compute in float32 or less


def _little_endian(numbers: array[Any]) -> bytes:
    """The bytes of numbers in little-endian order. The same function turns such bytes into this machine's order."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


FORMATS = {
    "bool": "?",
    "uint8": "B",
    "int8": "b",
    "uint16": "H",
    "int16": "h",
    "uint32": "I",
    "int32": "i",
    "uint64": "Q",
    "int64": "q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}
"""The types of a `NumberArray`, with their type codes in the module ``struct``."""
_ALIASES = {("l", 8): "q", ("L", 8): "Q", ("l", 4): "i", ("L", 4): "I"}
"""Type codes of C's ``long``, by its size on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberArray:
    """An array of numbers with a shape, in the machine's byte order and in C order.

    `of` copies any object with the buffer protocol, such as a numpy array. ``numpy.asarray(array)`` is a read-only
    view of it.

    Raises:
        ValueError: the type is not one of `FORMATS`, or the size of the data does not match the shape.
    """

    dtype: str
    """The name of the type of the numbers, as in numpy: one of `FORMATS`."""
    shape: tuple[int, ...]
    """The length of each axis."""
    data: bytes
    """The numbers, the last axis first."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        if self.dtype not in FORMATS:
            raise ValueError(f"dtype must be one of {', '.join(FORMATS)}, not {self.dtype!r}")
        if not all(type(length) is int and length >= 0 for length in self.shape):
            raise ValueError(f"shape must contain lengths, not {self.shape}")
        expected = math.prod(self.shape) * self.itemsize
        if len(self.data) != expected:
            raise ValueError(f"{self.dtype} of shape {self.shape} has {expected} bytes, not {len(self.data)}")

    @classmethod
    def of(cls, values: Any) -> Self:
        """Copy an object with the buffer protocol. Another `NumberArray` is returned unchanged.

        Raises:
            TypeError: it has no buffer, or one with other elements than numbers.
        """
        if isinstance(values, cls):
            return values
        memory = memoryview(values)
        code = memory.format.lstrip("@=" + ("<" if struct.pack("=H", 1) == b"\1\0" else ">"))
        code = _ALIASES.get((code, memory.itemsize), code)
        dtype = next((name for name, known in FORMATS.items() if known == code), None)
        if dtype is None:
            raise TypeError(f"numbers must be one of {', '.join(FORMATS)}, not of the format {memory.format!r}")
        return cls(dtype=dtype, shape=memory.shape or (), data=memory.tobytes())

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return struct.calcsize(f"={FORMATS[self.dtype]}")

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Numpy's description of the memory, which it reads in ``numpy.asarray(array)``."""
        kind = {"?": "b", "e": "f", "f": "f", "d": "f"}.get(code := FORMATS[self.dtype], "u" if code.isupper() else "i")
        order = "<" if struct.pack("=H", 1) == b"\1\0" else ">"
        typestr = f"{'|' if self.itemsize == 1 else order}{kind}{self.itemsize}"
        return {"version": 3, "shape": self.shape, "typestr": typestr, "data": self.data}

    def __len__(self) -> int:
        """The length of the first axis."""
        if not self.shape:
            raise TypeError("an array without an axis has no length")
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Self:
        """Copy consecutive rows of the first axis."""
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError("rows must be consecutive")
        width = math.prod(self.shape[1:]) * self.itemsize
        stop = max(start, stop)
        data = self.data[start * width : stop * width]
        return type(self)(dtype=self.dtype, shape=(stop - start, *self.shape[1:]), data=data)

    def __repr__(self) -> str:
        return f"NumberArray({self.dtype}, shape {self.shape})"
