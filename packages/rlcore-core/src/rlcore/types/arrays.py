"""Immutable arrays of numbers, each in one block of memory.

They are sequences of Python numbers. A tensor can be created from an array without a loop:
``torch.frombuffer(bytearray(ids.memory), dtype=torch.int32)``, or ``numpy.frombuffer(ids.memory, "int32")`` without a
copy.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar, cast, overload

Number = TypeVar("Number", int, bool, float)


class FrozenArray(Sequence[Number], Generic[Number]):
    """A fixed sequence of numbers of one type. A slice shares the memory of the original."""

    __slots__ = ("memory",)

    TYPECODE: ClassVar[str]
    """The type code of the modules ``array`` and ``struct``."""
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
    TYPECODE = "i"


class LossMask(FrozenArray[bool]):
    """A mask of the tokens that the policy sampled, one byte each."""

    __slots__ = ()
    TYPECODE = "?"

    def __init__(self, values: Iterable[bool] = ()) -> None:
        if isinstance(values, LossMask):
            self.memory = values.memory
        else:
            self.memory = memoryview(bytes(map(bool, values))).cast("?")


class Logprobs(FrozenArray[float]):
    """Log-probabilities in nats, 8 bytes each, so that the engine's values are preserved exactly."""

    __slots__ = ()
    TYPECODE = "d"
