"""Advantage estimators and policy losses: the decorators of pure functions of tensors, and those that a run selects.

The parameters of the function before ``*`` are fields of `AdvantageInputs` or `LossInputs`, if they have no default.
Those after ``*`` are the keys of its table: with their annotation, their default, and their line in the docstring.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

from rlcore.config.write import toml_value
from rlcore.plugins.registry import make_component

from rlcore_trainer.algorithms.interface import (
    Advantage,
    AdvantageOutput,
    AdvantageTraits,
    Loss,
    LossOutput,
    LossTraits,
)

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rlcore.config.schema import Table
    from rlcore.session.session import RunSession

    from rlcore_trainer.algorithms.config import AlgorithmConfig

Function = TypeVar("Function", bound="Callable[..., Any]")
PARTS = ("advantage", "loss")
"""Names of the component tables in ``[algorithm]``."""


def advantage(*, table: type[Table] | None = None, **traits: Any) -> Callable[[Function], Function]:
    """Make a function that returns advantages and metrics an advantage estimator.

    Args:
        table: base class of its table; None is `rlcore.config.schema.Table`
        traits: see `AdvantageTraits`
    """
    declared = AdvantageTraits(**traits)
    return lambda function: component(
        function, table, declared, lambda found: AdvantageOutput(advantages=found[0], metrics=found[1])
    )


def loss(*, table: type[Table] | None = None, **traits: Any) -> Callable[[Function], Function]:
    """Make a function that returns the loss of a micro-batch and metrics a policy loss.

    Args:
        table: base class of its table; None is `rlcore.config.schema.Table`
        traits: see `LossTraits`
    """
    declared = LossTraits(**traits)
    return lambda function: component(
        function, table, declared, lambda found: LossOutput(loss=found[0], metrics=found[1])
    )


def component(
    function: Function, table: type[Table] | None, traits: object, output: Callable[[Any], object]
) -> Function:
    """Add to the function its ``traits``, its ``Config``, and ``configured``, which binds an object of ``Config``.

    Args:
        function: a pure function of tensors
        table: base class of its table; None is `rlcore.config.schema.Table`
        traits: its properties
        output: makes what the component returns from what the function returns
    """
    parameters = inspect.signature(function).parameters.values()
    keys = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
    fields = [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY and one.default is one.empty]

    def configured(config: Table | None) -> Callable[[object], object]:
        values = {} if config is None else {key.name: getattr(config, key.name) for key in keys}

        @functools.wraps(function)
        def call(inputs: object) -> object:
            return output(function(*(getattr(inputs, name) for name in fields), **values))

        return call

    made: Any = function
    made.traits, made.configured = traits, configured
    made.Config = _table(function, keys, table) if keys else None
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


def selected_advantage(run: RunSession) -> Advantage:
    """Create the advantage estimator of a run from its configuration table."""
    return cast(Advantage, _selected(run, "advantage"))


def selected_loss(run: RunSession) -> Loss:
    """Create the policy loss of a run from its configuration table."""
    return cast(Loss, _selected(run, "loss"))


def advantage_traits(advantage: object) -> AdvantageTraits:
    """Return the traits of an advantage estimator or its class."""
    return cast(AdvantageTraits, getattr(advantage, "traits", AdvantageTraits()))


def loss_traits(loss: object) -> LossTraits:
    """Return the traits of a policy loss or its class."""
    return cast(LossTraits, getattr(loss, "traits", LossTraits()))


def description(run: RunSession) -> str:
    """Return a one-line summary of a run's algorithm, including resolved values."""
    algorithm: AlgorithmConfig = run.options("algorithm")
    parts = [f"{part} {_with_keys(run, part)}" for part in PARTS]
    parts.append(algorithm.aggregation or loss_traits(run.load("loss", algorithm.loss.id)).aggregation)
    kl = algorithm.kl
    parts.append(f"KL {kl.estimator} × {kl.coefficient:g} in the {kl.target}" if kl.coefficient else "no KL")
    taught = algorithm.distillation
    if taught.teacher is not None:
        parts.append(f"distillation {taught.divergence} × {taught.coefficient:g} from {taught.teacher}")
    return ", ".join(parts)


def _with_keys(run: RunSession, part: str) -> str:
    """Return an id with its options, such as ``gspo (clip_low=0.0003, clip_high=0.0004)``."""
    options: BaseModel | None = run.options(f"algorithm.{part}")
    set_ = {} if options is None else options.model_dump(mode="json", exclude_none=True)
    keys = ", ".join(f"{key}={toml_value(value)}" for key, value in set_.items())
    id: str = getattr(run.options("algorithm"), part).id
    return id + (f" ({keys})" if keys else "")


def _selected(run: RunSession, part: str) -> Any:
    id = getattr(run.options("algorithm"), part).id
    return configured(f"{part} {id!r}", run.load(part, id), run.options(f"algorithm.{part}"))


def configured(what: str, target: Any, config: BaseModel | None) -> Any:
    """Instantiate a class, or bind the validated table to a function; see `advantage` and `loss`."""
    if (bind := getattr(target, "configured", None)) is not None:
        return bind(config)
    if isinstance(target, type):
        return make_component(what, target, config)
    if config is None:
        return target
    return functools.update_wrapper(functools.partial(target, config=config), target)
