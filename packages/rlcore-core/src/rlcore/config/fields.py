"""The dotted keys of a pydantic model, and what it declares of the field at a path: docstring, type, secrecy."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import AllowInfNan, BaseModel, Secret, SecretBytes, SecretStr

from rlcore.config.layers import leaves, override_of
from rlcore.config.merge import Merged
from rlcore.config.origins import KeyPath
from rlcore.redaction import remember_arguments, remember_field, remember_secrets

_SECRET_TYPES = (SecretStr, SecretBytes, Secret)


def keys_of(model: type[BaseModel]) -> Iterator[str]:
    """All dotted keys of a model, including nested models. Tables in a list have index 0."""
    for name, field in model.model_fields.items():
        yield name
        for inner, place in inner_models(field.annotation):
            yield from (f"{name}.{place}{key}" for key in keys_of(inner))


def doc_of(model: type[BaseModel], path: tuple[str, ...]) -> str | None:
    """The docstring of the field at ``path``, or None."""
    if not path or path[0] not in model.model_fields:
        return None
    field = model.model_fields[path[0]]
    rest = path[1:]
    for inner, place in inner_models(field.annotation):
        inner_path = rest[1:] if place and rest and rest[0].isdecimal() else rest
        if inner_path and (found := doc_of(inner, inner_path)):
            return found
    return field.description


def annotation_of(model: type[BaseModel], path: tuple[str, ...]) -> Any:
    """The annotation of the field at ``path``, or None when the field does not exist."""
    if not path or path[0] not in model.model_fields:
        return None
    annotation = model.model_fields[path[0]].annotation
    if len(path) == 1:
        return annotation
    for inner, place in inner_models(annotation):
        if found := annotation_of(inner, path[2:] if place else path[1:]):
            return found
    items = typing.get_args(annotation) if typing.get_origin(annotation) in {list, tuple} else ()
    return items[0] if items and len(path) == 2 and path[1].isdecimal() else None


def is_string_list(annotation: Any) -> bool:
    """Whether an annotation is a list of strings."""
    if typing.get_origin(annotation) is not list:
        return False
    (item,) = typing.get_args(annotation)
    return item is str or (typing.get_origin(item) is typing.Annotated and typing.get_args(item)[0] is str)


def number_type(annotation: Any) -> str | None:
    """``int`` or ``float`` when an annotation accepts numbers but not booleans, else None."""
    inside = list(union_members(annotation))
    if bool in inside:
        return None
    return next((kind.__name__ for kind in (float, int) if kind in inside), None)


def union_members(annotation: Any) -> Iterator[Any]:
    """The types of a union, without the metadata of annotated types."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from union_members(typing.get_args(annotation)[0])
    elif origin in {typing.Union, types.UnionType}:
        for argument in typing.get_args(annotation):
            yield from union_members(argument)
    else:
        yield annotation


def non_finite(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """NaN and infinities in the fields of a model that were set, with their paths.

    pydantic accepts them unless the configuration of the model sets ``allow_inf_nan``, as that of `Table` does. Fields
    that allow them, with ``allow_inf_nan=True`` or by their default, are left out.
    """
    if isinstance(value, BaseModel):
        allows, fields = value.model_config.get("allow_inf_nan"), type(value).model_fields
        for name in () if allows else sorted(value.model_fields_set & fields.keys()):
            found, field = getattr(value, name), fields[name]
            by_default = isinstance(field.default, float) and not math.isfinite(field.default)
            checked = allows is not None or by_default or AllowInfNan(True) in field.metadata
            if isinstance(found, BaseModel) or not checked:
                yield from non_finite(found, (*place, name))
    elif isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from non_finite(item, (*place, str(key)))
    elif isinstance(value, float) and not math.isfinite(value):
        yield place, value


def inner_models(annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """The models inside an annotation, each with the prefix ``0.`` when it is in a list."""
    origin = typing.get_origin(annotation)
    if isinstance(annotation, type) and origin is None:
        if issubclass(annotation, BaseModel):
            yield annotation, ""
    elif origin in {typing.Union, types.UnionType}:
        for argument in typing.get_args(annotation):
            yield from inner_models(argument)
    elif origin is typing.Annotated:
        yield from inner_models(typing.get_args(annotation)[0])
    elif origin in {list, tuple}:
        for argument in typing.get_args(annotation):
            yield from ((model, "0." + place) for model, place in inner_models(argument))


def is_secret_field(model: type[BaseModel], path: KeyPath) -> bool:
    """Whether the field at ``path``, or a field that contains it, has a secret type of pydantic."""
    return any(_is_secret_type(annotation_of(model, path[:length])) for length in range(1, len(path) + 1))


def _is_secret_type(annotation: Any) -> bool:
    kind = typing.get_origin(annotation) or annotation
    if isinstance(kind, type) and issubclass(kind, _SECRET_TYPES):
        return True
    return any(map(_is_secret_type, typing.get_args(annotation)))


def remember_secret_fields(model: type[BaseModel], values: Mapping[str, Any], path: KeyPath, merged: Merged) -> None:
    """Remember the values at ``path`` that fill secret fields of ``model``, and the overrides that set them."""
    for place, value in leaves(values):
        if value is None or not is_secret_field(model, place):
            continue
        remember_secrets(value, "secret")
        remember_field(place[-1])
        overridden, text = override_of(merged.origin((*path, *place)))
        if overridden:
            remember_arguments([text])
