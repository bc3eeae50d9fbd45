"""Decorators that make a pure function of tensors an advantage estimator or a policy loss which a run can select.

The parameters of the function before ``*`` are fields of `AdvantageInputs` or `LossInputs`, if they have no default.
Those after ``*`` are the keys of its table: with their annotation, their default, and their line in the docstring.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from rlcore_trainer.algorithms.interface import AdvantageOutput, AdvantageTraits, LossOutput, LossTraits

if TYPE_CHECKING:
    from rlcore.config.schema import Table
    from torch import Tensor

Function = TypeVar("Function", bound="Callable[..., tuple[Tensor, Mapping[str, Any]]]")


def advantage(*, table: type[Table] | None = None, **traits: Any) -> Callable[[Function], Function]:
    """Make a function that returns advantages and metrics an advantage estimator.

    Args:
        table: base class of its table; None is `rlcore.config.schema.Table`
        traits: see `AdvantageTraits`
    """
    declared = AdvantageTraits(**traits)
    return lambda function: _component(
        function, table, declared, lambda result, metrics: AdvantageOutput(advantages=result, metrics=metrics)
    )


def loss(*, table: type[Table] | None = None, **traits: Any) -> Callable[[Function], Function]:
    """Make a function that returns the loss of a micro-batch and metrics a policy loss.

    Args:
        table: base class of its table; None is `rlcore.config.schema.Table`
        traits: see `LossTraits`
    """
    declared = LossTraits(**traits)
    return lambda function: _component(
        function, table, declared, lambda result, metrics: LossOutput(loss=result, metrics=metrics)
    )


def _component(
    function: Function,
    table: type[Table] | None,
    traits: AdvantageTraits | LossTraits,
    output: Callable[[Any, Any], object],
) -> Function:
    """Add to the function its ``traits``, its ``Config``, and ``configured``, which binds an object of ``Config``."""
    parameters = inspect.signature(function).parameters.values()
    keys = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
    fields = [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY and one.default is one.empty]

    def configured(config: Table | None) -> Callable[[object], object]:
        values = {} if config is None else {key.name: getattr(config, key.name) for key in keys}

        @functools.wraps(function)
        def call(inputs: object) -> object:
            return output(*function(*(getattr(inputs, name) for name in fields), **values))

        return call

    component: Any = function
    component.traits, component.configured = traits, configured
    component.Config = _table(function, keys, table) if keys else None
    return function


def _table(function: Callable[..., object], keys: list[inspect.Parameter], base: type[Table] | None) -> type[Table]:
    # Not at the top: `rlcore plugins list --check` imports this package, and pydantic takes half of its time.
    from pydantic import Field, create_model
    from rlcore.config.schema import Table

    scope: dict[str, Any] = getattr(function, "__globals__", {})
    annotated: Any = SimpleNamespace(__annotations__={key.name: key.annotation for key in keys})
    types = get_type_hints(annotated, scope, include_extras=True)  # without those of the tensors, which import torch
    texts = _descriptions(function.__doc__ or "")
    fields: dict[str, Any] = {
        key.name: (types[key.name], Field(default=key.default, description=texts.get(key.name))) for key in keys
    }
    return create_model(
        f"{function.__name__}.Config", __base__=base or Table, __module__=function.__module__, __doc__="Keys.", **fields
    )


def _descriptions(docstring: str) -> dict[str, str]:
    """Return the lines ``name: description`` of the indented sections of a docstring, as sentences."""
    found: dict[str, str] = {}
    for name, text in re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", inspect.cleandoc(docstring), re.MULTILINE):
        words = " ".join(text.split())
        found[name] = words[0].upper() + words[1:] + ("" if words.endswith(".") else ".")
    return found
