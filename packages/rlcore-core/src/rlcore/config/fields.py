"""The dotted keys of a pydantic model, and the docstring and type of the field at a path."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel


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
    return None


def is_string_list(annotation: Any) -> bool:
    """Whether an annotation is a list of strings."""
    if typing.get_origin(annotation) is not list:
        return False
    (item,) = typing.get_args(annotation)
    return item is str or (typing.get_origin(item) is typing.Annotated and typing.get_args(item)[0] is str)


def number_type(annotation: Any) -> str | None:
    """``int`` or ``float`` when an annotation accepts numbers but not booleans, else None."""
    if typing.get_origin(annotation) in {typing.Union, types.UnionType, typing.Annotated}:
        inside = [argument for argument in typing.get_args(annotation) if isinstance(argument, type)]
    else:
        inside = [annotation]
    if bool in inside:
        return None
    return next((kind.__name__ for kind in (float, int) if kind in inside), None)


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
