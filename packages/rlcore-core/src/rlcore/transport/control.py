"""A ``gymnasium.Env`` whose simulator runs in another interpreter; imports gymnasium."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from rlcore.errors import EnvironmentFailure
from rlcore.transport.remote import RemoteObject
from rlcore.transport.spaces import flaw_in, space_of

DAMAGED = (TypeError, ValueError, LookupError, AttributeError, OverflowError, MemoryError)
"""Errors in values of another form than expected."""


class RemoteControl(gymnasium.Env[Any, Any]):
    """As `rlcore.transport.control_environment`.

    Args:
        start: starts the interpreter
        target: creates the environment there
        arguments: of ``target``
        timeout_s: time limit of each call in seconds
    """

    def __init__(
        self, start: Callable[[], RemoteObject], target: str, arguments: Mapping[str, Any], *, timeout_s: float
    ) -> None:
        self._start, self._target, self._arguments = start, target, arguments
        self.timeout_s = timeout_s
        self._interpreter: RemoteObject | None = None
        self._needs_reset = False
        try:
            description = self._create()
            self.observation_space = space_of(description["observation_space"], "the observation space")
            self.action_space = space_of(description["action_space"], "the action space")
            self.metadata = dict(description["metadata"])
            self.render_mode = description["render_mode"]
            self.max_episode_steps = description["max_episode_steps"]
        except DAMAGED as error:
            raise self._broken("the creation", f"a damaged description: {error}") from None

    def _create(self) -> Mapping[str, Any]:
        interpreter = self._start()
        try:
            made = interpreter.create("control", self._target, timeout_s=self.timeout_s, arguments=self._arguments)
        except BaseException:
            interpreter.kill()
            raise
        self._interpreter = interpreter
        return dict(made)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As ``gymnasium.Env.reset``. A process that has failed is replaced by a new one before.

        Raises:
            EnvironmentFailure: the environment or its process failed.
        """
        if self._interpreter is None or not self._interpreter.usable:
            if self._interpreter is not None:
                self._interpreter.kill()
            self._create()
        named: dict[str, Any] = {"seed": seed} if options is None else {"seed": seed, "options": options}
        found = self._ask("reset", **named)
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)):
            raise self._broken("reset", "something else than (observation, info)")
        self._check("reset", found[0])
        self._needs_reset = False
        return found[0], found[1]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """As ``gymnasium.Env.step``.

        Raises:
            EnvironmentFailure: the environment or its process failed. The episode cannot continue.
        """
        if self._needs_reset:
            raise EnvironmentFailure("step cannot be called: the process failed in this episode; call reset")
        found = self._ask("step", action)
        if not _is_step(found):
            raise self._broken("step", "something else than (observation, reward, terminated, truncated, info)")
        self._check("step", found[0])
        observation, reward, terminated, truncated, info = found
        try:
            return observation, float(reward), terminated, truncated, info
        except OverflowError:
            raise self._broken("step", "a reward that is too large") from None

    def render(self) -> Any:
        """The picture or text of the environment's render mode."""
        return self._ask("render")

    def ask(self, name: str, *positional: Any, **named: Any) -> Any:
        """The result of another public method of the environment. Raises as `step`."""
        return self._ask(name, *positional, **named)

    def close(self) -> None:
        """End the process. A second call does nothing."""
        if self._interpreter is not None:
            self._interpreter.close()

    def _ask(self, name: str, *positional: Any, **named: Any) -> Any:
        if self._interpreter is None:
            raise EnvironmentFailure(f"{name} cannot be called: the environment was not created")
        try:
            return self._interpreter.ask(name, *positional, timeout_s=self.timeout_s, **named)
        except BaseException:
            self._needs_reset = True
            raise

    def _check(self, name: str, observation: Any) -> None:
        try:
            flaw = flaw_in(observation, self.observation_space, "the observation")
        except DAMAGED as error:
            flaw = f"a damaged observation: {error}"
        if flaw:
            self._needs_reset = True
            raise EnvironmentFailure(f"{name} of {self._target}: {flaw}")

    def _broken(self, name: str, found: str) -> EnvironmentFailure:
        self._needs_reset = True
        if self._interpreter is not None:
            self._interpreter.kill()
        return EnvironmentFailure(f"{name} of {self._target} returned {found}")


def _is_step(value: Any) -> bool:
    kinds: tuple[Any, ...] = (object, (int, float), bool, bool, dict)
    return isinstance(value, tuple) and len(value) == len(kinds) and all(map(_is_of, value, kinds))


def _is_of(value: Any, kind: Any) -> bool:
    return isinstance(value, kind)
