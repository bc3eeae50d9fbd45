"""What a pydantic model accepts: its dotted keys, and the docstring of the field at a path."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel


def keys_of(model: type[BaseModel]) -> Iterator[str]:
    """Every dotted key of a model and of the models in it; tables of a list stand at place 0."""
    for name, field in model.model_fields.items():
        yield name
        for inner, place in inner_models(field.annotation):
            yield from (f"{name}.{place}{key}" for key in keys_of(inner))


def doc_of(model: type[BaseModel], path: tuple[str, ...]) -> str | None:
    """The docstring of the field at ``path``, None when it has none."""
    if not path or path[0] not in model.model_fields:
        return None
    field = model.model_fields[path[0]]
    rest = path[1:]
    for inner, place in inner_models(field.annotation):
        inner_path = rest[1:] if place and rest and rest[0].isdecimal() else rest
        if inner_path and (found := doc_of(inner, inner_path)):
            return found
    return field.description


def inner_models(annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """The models within an annotation, each with ``0.`` when it stands in a list."""
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
