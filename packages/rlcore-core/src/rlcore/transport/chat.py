"""An `Environment` with chat messages that runs in another interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rlcore.errors import EnvironmentFailure
from rlcore.transport.remote import RemoteObject
from rlcore.transport.typed import received
from rlcore.types import Message, Observation, Step, Task, to_json

if TYPE_CHECKING:
    from rlcore.episodes.context import EpisodeContext

Value = TypeVar("Value")


class Processes(Protocol):
    """Where an episode gets its process from."""

    def take(self) -> RemoteObject:
        """A process that no other episode uses."""
        ...

    def put_back(self, interpreter: RemoteObject) -> None:
        """Keep a process for a later episode."""
        ...


class RemoteChat:
    """One episode. Its methods block, so they belong in a thread.

    Args:
        processes: gives the process at the first `reset`
        target: creates the environment there
        arguments: of ``target``
        timeout_s: time limit of each call in seconds
    """

    def __init__(self, processes: Processes, target: str, arguments: Mapping[str, Any], *, timeout_s: float) -> None:
        self._processes, self._target, self._arguments = processes, target, arguments
        self._timeout_s = timeout_s
        self._interpreter: RemoteObject | None = None

    def reset(self, task: Task, *, seed: int, context: EpisodeContext | None = None) -> Observation:
        """As `Environment.reset`. The environment there gets a context of its own, without sandbox and model.

        Raises:
            EnvironmentFailure: the environment or its process failed.
        """
        if self._interpreter is None:
            self._interpreter = self._processes.take()
        self._interpreter.create("chat", self._target, timeout_s=self._timeout_s, arguments=self._arguments)
        data = to_json(task, encode_bytes=lambda image: "")
        answer = self._ask(
            "reset",
            task={name: data[name] for name in ("id", "messages", "fields", "environment")},
            images=list(task.images),
            seed=seed,
            sibling=context.sibling if context is not None else 0,
            drawn=context.random.getrandbits(63) if context is not None else seed,
        )
        return self._value(Observation, answer)

    def step(self, action: Message) -> Step:
        """As `Environment.step`. Raises as `reset`."""
        return self._value(Step, self._ask("step", action=to_json(action)))

    def cut(self, written: Message | None) -> Step | None:
        """As `ScoresCut.cut`; None if the environment there has no such method. Raises as `reset`."""
        answer = self._ask("cut", written=None if written is None else to_json(written))
        return None if answer is None else self._value(Step, answer)

    def close(self) -> None:
        """Close the environment there, and keep its process. A call that another thread waits for is ended."""
        interpreter, self._interpreter = self._interpreter, None
        if interpreter is None:
            return
        if interpreter.busy:
            interpreter.kill()
        if not interpreter.usable:
            return
        try:
            interpreter.release(timeout_s=self._timeout_s)
        except BaseException:
            interpreter.kill()
            raise
        self._processes.put_back(interpreter)

    def _ask(self, name: str, **named: Any) -> Any:
        if self._interpreter is None:
            raise EnvironmentFailure(f"{name} cannot be called: the episode has not begun")
        return self._interpreter.ask(name, timeout_s=self._timeout_s, **named)

    def _value(self, kind: type[Value], answer: Any) -> Value:
        try:
            return received(kind, answer)
        except ValueError as error:
            text = f"{self._target} in the other interpreter returned no {kind.__name__}: {error}"
            raise EnvironmentFailure(text) from None
