"""Secrets of a configuration: which fields hold them, how they are shown, and that masked ones are given again."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from rlcore.config.fields import annotation_of
from rlcore.config.layers import DEFAULT, KeyPath, Merged, leaves, override_of
from rlcore.config.messages import Problem, ProblemsError
from rlcore.redaction import MASK, holds_mask, redacted, remember_arguments, remember_field, remember_secrets

_SECRET_TYPES = (SecretStr, SecretBytes, Secret)


def masked_tree(tree: Mapping[str, Any], origin: Callable[[KeyPath], str]) -> dict[str, Any]:
    """A configuration with secrets masked. Those that are defaults are left out, so that they apply again."""
    shown: dict[str, Any] = _without_defaults(redacted(tree), (), origin)
    return shown


def _without_defaults(value: Any, path: KeyPath, origin: Callable[[KeyPath], str]) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_defaults(item, (*path, key), origin)
            for key, item in value.items()
            if not (holds_mask(item) and origin((*path, key)) == DEFAULT)
        }
    if isinstance(value, list):
        return [_without_defaults(item, (*path, str(index)), origin) for index, item in enumerate(value)]
    return value


def check_secrets(tree: Mapping[str, Any], merged: Merged) -> None:
    """Ask for the secrets that an earlier run masked.

    Raises:
        ProblemsError: lists the key of every masked value.
    """
    problems = []
    for path, value in leaves(tree):
        if holds_mask(value):
            key = ".".join(path)
            example = value if isinstance(value, str) and value != MASK else '"$SECRET"'
            reason = (
                "this secret is never written to a file, so it must be given again:\n"
                f"{key}={example} on the command line, from an environment variable, or -c FILE with this key"
            )
            problems.append(Problem(kind="missing secret", path=key, origin=merged.origin(path), reason=reason))
    if problems:
        raise ProblemsError(problems)


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
