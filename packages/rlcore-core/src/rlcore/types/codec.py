"""Converts values to and from plain JSON data, based on the fields and type hints of their dataclasses.

A dataclass becomes an object with all its fields, except those with ``stored=False`` in their metadata, and empty ones
with ``sparse=True``. A named tuple becomes a list, an array of tokens a list of numbers, and an enum its value.
Arrays may be packed; both forms are read. The caller chooses how bytes become text: base64, or a name in a
`rlcore.rollouts.records.BlobStore`. The numbers of a `NumberArray` are always base64.
"""

from __future__ import annotations

import base64
import binascii
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from numbers import Real
from typing import Any, Literal, TypeVar

from rlcore.types.arrays import FrozenArray, LossMask, NumberArray
from rlcore.types.frozen import FrozenDict, freeze, thaw

Value = TypeVar("Value")
EncodeBytes = Callable[[bytes], str]
DecodeBytes = Callable[[str], bytes]
Packed = tuple[type[FrozenArray[Any]], ...]


def to_base64(data: bytes) -> str:
    """Encode the bytes as base64 text."""
    return base64.b64encode(data).decode("ascii")


def from_base64(text: str) -> bytes:
    """The inverse of `to_base64`."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from None


def to_json(value: Any, *, encode_bytes: EncodeBytes = to_base64, packed: Packed = ()) -> Any:
    """Convert a value to plain data.

    Values of type `Any`, such as the fields of a task, are kept unchanged, with mappings as ``dict`` and sequences as
    ``list``.

    Args:
        value: a dataclass, or a value of a field
        encode_bytes: converts bytes to text
        packed: types of the arrays that become their ``packed`` text instead of a list
    """
    if is_dataclass(value):
        cls: Any = type(value)
        hints = _hints(cls)
        encode_bytes = to_base64 if cls is NumberArray else encode_bytes
        return {
            name: _encode(getattr(value, name), hint, encode_bytes, packed)
            for name, hint in hints.items()
            if name not in _sparse(cls) or getattr(value, name)
        }
    return _encode(value, type(value), encode_bytes, packed)


def from_json(cls: type[Value], data: Any, *, decode_bytes: DecodeBytes = from_base64) -> Value:
    """Convert plain data to a value, the inverse of `to_json`. Fields with a default may be missing.

    Raises:
        ValueError: the data is not of this type. The message begins with the location of the error.
    """
    try:
        found: Value = _decode(data, cls, decode_bytes)
    except ValueError as error:
        raise ValueError(f"{cls.__name__}{error}") from None
    return found


@cache
def _hints(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls) if field.metadata.get("stored", True)}


@cache
def _sparse(cls: Any) -> frozenset[str]:
    return frozenset(field.name for field in fields(cls) if field.metadata.get("sparse"))


def _encode(value: Any, hint: Any, encode_bytes: EncodeBytes, packed: Packed) -> Any:
    if isinstance(value, packed):
        return value.packed()
    if isinstance(value, LossMask):
        return list(value.tobytes())
    if isinstance(value, FrozenArray):
        return value.tolist()
    if hint is Any:
        return thaw(value)
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, bytes):
        return encode_bytes(value)
    if is_dataclass(value):
        return to_json(value, encode_bytes=encode_bytes, packed=packed)
    if isinstance(value, Mapping):
        inside = _mapping_value(hint)
        return {key: _encode(item, inside, encode_bytes, packed) for key, item in value.items()}
    if isinstance(value, Sequence):
        inside = _item(hint)
        return [_encode(item, inside, encode_bytes, packed) for item in value]
    return float(value) if isinstance(value, Real) else value


def _mapping_value(hint: Any) -> Any:
    return next((typing.get_args(option)[1] for option in _options(hint) if _is_mapping(option)), Any)


def _item(hint: Any) -> Any:
    return next((typing.get_args(option)[0] for option in _options(hint) if _is_sequence(option)), Any)


def _options(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the hint itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _is_mapping(hint: Any) -> bool:
    return typing.get_origin(hint) is Mapping


def _is_sequence(hint: Any) -> bool:
    return typing.get_origin(hint) in (tuple, Sequence)


def _decode(data: Any, hint: Any, decode_bytes: DecodeBytes) -> Any:
    if hint is Any:
        return freeze(data)
    options = _options(hint)
    if len(options) > 1:
        return _decode(data, _chosen(data, options), decode_bytes)
    if isinstance(hint, type) and is_dataclass(hint):
        return _decode_dataclass(data, hint, decode_bytes)
    if typing.get_origin(hint) is Literal:
        _expect(data in typing.get_args(hint), data, f"one of {', '.join(map(repr, typing.get_args(hint)))}")
        return data
    if _is_mapping(hint):
        _expect(isinstance(data, dict), data, "an object")
        inside = typing.get_args(hint)[1]
        return FrozenDict({key: _inside(item, inside, f".{key}", decode_bytes) for key, item in data.items()})
    if _is_sequence(hint):
        _expect(isinstance(data, list), data, "a list")
        inside = typing.get_args(hint)[0]
        return tuple(_inside(item, inside, f"[{index}]", decode_bytes) for index, item in enumerate(data))
    if isinstance(hint, type) and issubclass(hint, tuple):
        return _decode_named_tuple(data, hint, decode_bytes)
    return _decode_plain(data, hint, decode_bytes)


def _decode_named_tuple(data: Any, cls: Any, decode_bytes: DecodeBytes) -> Any:
    _expect(isinstance(data, list) and len(data) == len(cls._fields), data, f"a list of {', '.join(cls._fields)}")
    hints = typing.get_type_hints(cls)
    return cls(*(_inside(item, hints[name], f".{name}", decode_bytes) for name, item in zip(hints, data, strict=True)))


def _decode_plain(data: Any, hint: Any, decode_bytes: DecodeBytes) -> Any:
    if hint is types.NoneType:
        _expect(data is None, data, "null")
        return None
    if issubclass(hint, FrozenArray) and isinstance(data, str):
        try:
            return hint.unpacked(data)
        except ValueError as error:
            raise ValueError(f": {error}") from None
    if issubclass(hint, FrozenArray):
        _expect(isinstance(data, list), data, "a list of numbers")
        try:
            return hint(data)
        except (TypeError, OverflowError, ValueError) as error:
            raise ValueError(f": {error}") from None
    if issubclass(hint, Enum):
        _expect(data in [member.value for member in hint], data, f"one of {', '.join(map(repr, map(str, hint)))}")
        return hint(data)
    if hint is bytes:
        _expect(isinstance(data, str), data, "a string")
        try:
            return decode_bytes(data)
        except ValueError as error:
            raise ValueError(f": {error}") from None
    if hint is float:
        _expect(isinstance(data, (int, float)) and not isinstance(data, bool), data, "a number")
        return data
    _expect(type(data) is hint, data, {str: "a string", int: "an integer", bool: "a boolean"}[hint])
    return data


def _decode_dataclass(data: Any, cls: type, decode_bytes: DecodeBytes) -> Any:
    _expect(isinstance(data, dict), data, "an object")
    hints = _hints(cls)
    decode_bytes = from_base64 if cls is NumberArray else decode_bytes
    unknown = [name for name in data if name not in hints]
    _expect(not unknown, unknown, f"only the fields of {cls.__name__}: {', '.join(hints)}")
    values = {name: _inside(item, hints[name], f".{name}", decode_bytes) for name, item in data.items()}
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f": {error}") from None


def _chosen(data: Any, options: tuple[Any, ...]) -> Any:
    """Return the member of a union that matches the data."""
    if data is None and types.NoneType in options:
        return types.NoneType
    named = [option for option in options if option is not types.NoneType]
    classes: list[Any] = [option for option in named if is_dataclass(option)]
    if isinstance(data, dict) and classes:
        return next((option for option in classes if set(_hints(option)) == set(data)), classes[0])
    if isinstance(data, list):
        return next((option for option in named if _is_sequence(option)), named[0])
    return named[0]


def _inside(data: Any, hint: Any, step: str, decode_bytes: DecodeBytes) -> Any:
    try:
        return _decode(data, hint, decode_bytes)
    except ValueError as error:
        raise ValueError(f"{step}{error}") from None


def _expect(met: bool, data: Any, wanted: str) -> None:
    if not met:
        found = repr(data)
        raise ValueError(f": expected {wanted}, found {found if len(found) <= 60 else found[:57] + '...'}")
