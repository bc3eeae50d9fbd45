"""The header of GGUF files: typed metadata, and the names, shapes, types and places of the tensors.

Every count, length and offset is bounded before it is used, so that a damaged or hostile file allocates nothing large.
The libraries that convert a file read it again and check less, so a file is read here first. Format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from rlcore.errors import UserError

from rlcore_merge.blocks import Shape
from rlcore_merge.mapped_file import MappedFile
from rlcore_merge.records import COPY_AGAIN

MAGIC = b"GGUF"
VERSIONS = (2, 3)
"""Version 1 has counts of 32 bits, and no published model uses it."""
MOST_ENTRIES = 2**12
"""Metadata entries. Published models have about 40."""
MOST_TENSORS = 2**16
"""Tensors. Published models have at most 2,000."""
MOST_ITEMS = 2**21
"""Items of all arrays together. The vocabulary of Gemma 3 has 786,432."""
MOST_BYTES = 2**26
"""Bytes of the header. That of Gemma 3 has 7 million."""
LONGEST_NAME = 2**8
"""Bytes of a metadata key or of the name of a tensor."""
LONGEST_TEXT = 2**20
"""Bytes of a single string, such as a chat template."""
LONGEST_ITEM = 2**11
"""Bytes of a string in an array, such as a token."""
MOST_AXES = 4
"""Axes of a tensor in ggml."""
LARGEST_ALIGNMENT = 2**16
SMALLEST_ENTRY, SMALLEST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8
"""Bytes of the shortest possible entry and description of a tensor."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The `struct` format of each type of numbers."""
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class Items:
    """An array in the metadata. Its items were skipped."""

    text: bool
    """Whether the items are strings."""
    count: int


Value = int | float | bool | str | Items


@dataclass(frozen=True, slots=True)
class Described:
    """A tensor as the header describes it."""

    shape: Shape
    """Lengths of the axes in row-major order, which is the reverse of the file's."""
    type: int
    """ggml's number of the type."""
    offset: int
    """Bytes from the start of the data."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of a file contains."""

    file: MappedFile
    metadata: Mapping[str, Value]
    tensors: Mapping[str, Described]
    data: int
    """Position of the data in bytes."""


def read(path: Path) -> Header:
    """Read the header of a file.

    Raises:
        UserError: the file is truncated, is not a GGUF file of a supported version, or exceeds a limit.
    """
    file = MappedFile(path)
    try:
        return _read(file)
    except struct.error:  # a number does not fit in the rest of the file
        found = f"it ends in the header, after {file.size:,} bytes"
    except UnicodeDecodeError as error:
        found = f"a text is not UTF-8: {error.object[:40]!r}"
    except ValueError as error:
        found = str(error)
    raise UserError("a GGUF file cannot be read", found=found, where=str(path), fix=COPY_AGAIN)


def _read(file: MappedFile) -> Header:
    if (magic := bytes(file.buffer[:4])) != MAGIC:
        raise ValueError(f"it begins with {magic!r} instead of {MAGIC!r}" if magic else "it is empty")
    source = _Source(file)
    version, tensors, entries = source.numbers("IQQ")
    if version not in VERSIONS:
        if version & 0xFFFF == 0:
            raise ValueError("its numbers are big-endian; only little-endian files are supported")
        raise ValueError(f"it has version {version}; supported are {' and '.join(map(str, VERSIONS))}")
    source.bound("metadata entries", entries, MOST_ENTRIES, SMALLEST_ENTRY)
    source.bound("tensors", tensors, MOST_TENSORS, SMALLEST_TENSOR)
    metadata: dict[str, Value] = {}
    for _ in range(entries):
        key = source.text(LONGEST_NAME, "a metadata key")
        if key in metadata:
            raise ValueError(f"the metadata entry {key!r} occurs twice")
        metadata[key] = source.value(key)
    described: dict[str, Described] = {}
    for _ in range(tensors):
        name = source.text(LONGEST_NAME, "the name of a tensor")
        if name in described:
            raise ValueError(f"the tensor {name!r} occurs twice")
        described[name] = source.tensor(name)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= LARGEST_ALIGNMENT or alignment & (alignment - 1):
        raise ValueError(f"general.alignment is {alignment!r} and not a power of two up to {LARGEST_ALIGNMENT:,}")
    return Header(file, metadata, described, -(-source.at // alignment) * alignment)


class _Source:
    """Reads the header of a file in order, within its limits."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.at = len(MAGIC)
        self._items = 0

    def bound(self, what: str, count: int, most: int, smallest: int) -> None:
        """Raise `ValueError` if there are more than ``most``, or more than fit in the rest of the file."""
        if count > most:
            raise ValueError(f"it states {count:,} {what}, and the limit is {most:,}")
        if count * smallest > self.file.size - self.at:
            raise ValueError(f"it is truncated: {count:,} {what} do not fit in {self.file.size:,} bytes")

    def numbers(self, layout: str) -> tuple[int, ...]:
        """The numbers of a `struct` format in little-endian order. Raises `struct.error` at the end of the file."""
        found = struct.unpack_from(f"<{layout}", self.file.buffer, self.at)
        self._skip(struct.calcsize(f"<{layout}"))
        return found

    def text(self, most: int, what: str) -> str:
        """A string of at most ``most`` bytes."""
        (length,) = self.numbers("Q")
        self.bound(f"bytes of {what}", length, most, 1)
        begin = self.at
        self._skip(length)
        return bytes(self.file.buffer[begin : self.at]).decode("utf-8")

    def value(self, key: str) -> Value:
        """The value of a metadata entry."""
        (kind,) = self.numbers("I")
        if kind == _STRING:
            return self.text(LONGEST_TEXT, f"the text {key!r}")
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            raise ValueError(f"the metadata entry {key!r} has the unknown type {kind}")
        return self.numbers(_SCALARS[kind])[0]

    def _array(self, key: str) -> Items:
        kind, count = self.numbers("IQ")
        if kind != _STRING and kind not in _SCALARS:
            raise ValueError(f"the array {key!r} has items of the unsupported type {kind}")
        width = 8 if kind == _STRING else struct.calcsize(f"<{_SCALARS[kind]}")
        self.bound(f"items of the array {key!r} and those before it", self._items + count, MOST_ITEMS, 0)
        self.bound(f"items of the array {key!r}", count, MOST_ITEMS, width)
        self._items += count
        if kind != _STRING:
            self._skip(count * width)
            return Items(text=False, count=count)
        for _ in range(count):
            (length,) = self.numbers("Q")
            self.bound(f"bytes of an item of the array {key!r}", length, LONGEST_ITEM, 1)
            self._skip(length)
        return Items(text=True, count=count)

    def tensor(self, name: str) -> Described:
        """The description of a tensor after its name."""
        (axes,) = self.numbers("I")
        if not 1 <= axes <= MOST_AXES:
            raise ValueError(f"the tensor {name!r} has {axes:,} axes; supported are 1 to {MOST_AXES}")
        shape = tuple(reversed(self.numbers(f"{axes}Q")))
        if 0 in shape or prod(shape) >= 2**62:
            raise ValueError(f"the tensor {name!r} has the shape {list(shape)}")
        kind, offset = self.numbers("IQ")
        return Described(shape, kind, offset)

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > MOST_BYTES:
            raise ValueError(f"its header has more than {MOST_BYTES:,} bytes")
