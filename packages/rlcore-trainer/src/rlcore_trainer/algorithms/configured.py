"""Create the advantage and the policy loss configured in ``[algorithm.advantage]`` and ``[algorithm.loss]``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, cast

from rlcore.config.write import toml_value
from rlcore.plugins.registry import make_component

from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.algorithms.interface import Advantage, AdvantageTraits, Loss, LossTraits

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rlcore.session.session import RunSession

PARTS = tuple(AlgorithmConfig.COMPONENTS)
"""Names of the component tables in ``[algorithm]``."""


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
    """Instantiate a class, or bind the validated table to a function; see `rlcore_trainer.algorithms.functions`."""
    if (bind := getattr(target, "configured", None)) is not None:
        return bind(config)
    if isinstance(target, type):
        return make_component(what, target, config)
    if config is None:
        return target
    return functools.update_wrapper(functools.partial(target, config=config), target)
