"""The tasks that are evaluated, bundled ones and RoboTwin's own, behind one face."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, SupportsFloat, TypeVar

import gymnasium
import numpy as np
from numpy.typing import NDArray
from rlcore.config.layers import Layer
from rlcore.config.merge import merge_layers
from rlcore.config.schema import Table
from rlcore.config.tables import TableValidator
from rlcore.errors import EnvironmentFailure

from rl_plugin_robotwin.data.checkout_tasks import expert_of, repeated
from rl_plugin_robotwin.evaluation.results import Candidate
from rl_plugin_robotwin.robotwin_checkout.environment import FIXED_STEPS, RoboTwinEnv

Level = Literal["easy", "hard"]
Split = Literal["seen", "unseen"]
HARD: Mapping[str, Any] = {
    "random_background": True,
    "cluttered_table": True,
    "clean_background_rate": 0.02,
    "random_table_height": 0.03,
    "random_light": True,
    "crazy_random_light_rate": 0.02,
}
"""RoboTwin's ``demo_randomized``, for the bundled tasks."""
SETTINGS: Mapping[Level, str] = {"easy": "demo_clean", "hard": "demo_randomized"}
START_S, CALL_S = 300.0, 600.0
Model = TypeVar("Model", bound=Table)
Stepped = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]
"""What ``gymnasium.Env.step`` returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where and how tasks run. It is sent to workers."""

    level: Level = "easy"
    instructions: Split = "seen"
    checkout: str | None = None
    """RoboTwin's folder, for its own tasks."""
    python: str | None = None
    """The interpreter that has what RoboTwin needs; None for this one."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the environment."""
    watched: bool = False
    """Whether pictures are drawn for videos."""


class Arena(ABC):
    """A task."""

    environment: gymnasium.Env[Any, Any]

    @abstractmethod
    def expert(self, seed: int) -> Candidate:
        """Let the expert try a seed."""

    @abstractmethod
    def begin(self, candidate: Candidate) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reset to exactly this seed. Raises EnvironmentFailure if that cannot be."""

    @abstractmethod
    def script(self, candidate: Candidate) -> Iterator[NDArray[Any]]:
        """What the expert does with a seed. Call it before `begin`, and ask for a part after `begin`, one per step."""

    def step(self, action: NDArray[Any]) -> Stepped:
        """Take an action of the environment, or do a part of the expert's `script`."""
        return self.environment.step(action)

    def close(self) -> None:
        """Free everything."""
        self.environment.close()


class BundledArena(Arena):
    """A bundled task."""

    def __init__(self, task: str, place: Place) -> None:
        from rl_plugin_robotwin.config import EnvironmentConfig
        from rl_plugin_robotwin.environment import BimanualEnvironment

        hard = place.level == "hard"
        given = {
            **place.options,
            "task": task,
            "instructions": place.instructions,
            "looks": "unseen" if hard else "seen",
            "domain_randomization": dict(HARD) if hard else {},
            "reset_attempts": 1,
        }
        config = _validated(EnvironmentConfig, given)
        self._environment = BimanualEnvironment(config, render_mode="rgb_array" if place.watched else None)
        self.environment = self._environment

    def expert(self, seed: int) -> Candidate:
        """As `Arena.expert`."""
        from rl_plugin_robotwin.experts import expert_actions

        try:
            self._environment.reset(seed=seed)
        except EnvironmentFailure as error:
            return Candidate(seed=seed, status="unstable", error=str(error))
        for action in expert_actions(self._environment):
            _, _, terminated, truncated, info = self._environment.step(action)
            if info["is_success"]:
                return Candidate(seed=seed, status="success")
            if terminated or truncated:
                break
        return Candidate(seed=seed, status="failure")

    def begin(self, candidate: Candidate) -> tuple[dict[str, Any], dict[str, Any]]:
        """As `Arena.begin`."""
        return self._environment.reset(seed=candidate.seed)

    def script(self, candidate: Candidate) -> Iterator[NDArray[Any]]:
        """As `Arena.script`."""
        from rl_plugin_robotwin.experts import expert_actions

        yield from expert_actions(self._environment)


class CheckoutArena(Arena):
    """A task of a RoboTwin checkout."""

    def __init__(self, task: str, place: Place) -> None:
        from rl_plugin_robotwin.robotwin_checkout.config import CheckoutConfig

        given: dict[str, Any] = {
            "cameras": [],
            **place.options,
            "task": task,
            "checkout": place.checkout,
            "settings": SETTINGS[place.level],
            "instructions": place.instructions,
            "reset_attempts": 1,
            "render_mode": "rgb_array" if place.watched else None,
        }
        _validated(CheckoutConfig, {key: value for key, value in given.items() if key != "render_mode"})
        self.environment = _elsewhere(place.python, given) if place.python else RoboTwinEnv(**given)

    def expert(self, seed: int) -> Candidate:
        """As `Arena.expert`."""
        found = expert_of(self.environment, seed)
        return Candidate(seed=seed, status=found["status"], error=found["error"], slots=found["slots"])

    def begin(self, candidate: Candidate) -> tuple[dict[str, Any], dict[str, Any]]:
        """As `Arena.begin`."""
        return self.environment.reset(seed=candidate.seed, options={"slots": dict(candidate.slots)})

    def script(self, candidate: Candidate) -> Iterator[NDArray[Any]]:
        """As `Arena.script`, in parts of 60 ms. The parts have two dimensions: they are a motion and no actions."""
        motion = np.asarray(expert_of(self.environment, candidate.seed)["motion"])
        return (motion[first : first + FIXED_STEPS] for first in range(0, len(motion), FIXED_STEPS))

    def step(self, action: NDArray[Any]) -> Stepped:
        """As `Arena.step`."""
        if action.ndim == 1:
            return self.environment.step(action)
        return repeated(self.environment, action)


def open_arena(task: str, place: Place) -> Arena:
    """Create a task: a bundled one, or else one of the checkout.

    Raises:
        UserError: something is missing.
    """
    return BundledArena(task, place) if task in bundled_tasks() else CheckoutArena(task, place)


def bundled_tasks() -> tuple[str, ...]:
    """The names of the bundled tasks."""
    from rl_plugin_robotwin.tasks import TASKS

    return tuple(TASKS)


def _validated(model: type[Model], values: Mapping[str, Any]) -> Model:
    """The configuration of an environment. Raises ConfigError with all mistakes in the options."""
    layer = Layer(tree={"environment": values}, origins={("environment",): "the options of the evaluation"})
    validator = TableValidator(merge_layers([layer], short_forms={}))
    found = validator.own(model, values, ("environment",))
    validator.finish("the evaluation")
    assert isinstance(found, model)
    return found


def _elsewhere(python: str, given: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    import rlcore
    from rlcore.transport import control_environment

    import rl_plugin_robotwin

    lent = {module.__name__: Path(str(module.__file__)).parents[1] for module in (rlcore, rl_plugin_robotwin)}
    target = "rl_plugin_robotwin.robotwin_checkout.environment:RoboTwinEnv"
    return control_environment(python, target, given, timeout_s=CALL_S, packages=lent)
