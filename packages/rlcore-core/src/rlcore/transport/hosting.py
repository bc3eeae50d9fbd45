"""The environments of one table of a run, in another interpreter or on other machines."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.errors import EnvironmentFailure
from rlcore.transport.chat import RemoteChat
from rlcore.transport.environment import remote_control
from rlcore.transport.interpreter import Interpreter
from rlcore.transport.remote import NoPlace, RemoteObject, Unavailable

if TYPE_CHECKING:
    import gymnasium
    from pydantic import BaseModel

    from rlcore.specs import EnvironmentSpec


WAIT_S = 0.5
"""Time after which a server is asked again, in seconds."""


class HostedEnvironments:
    """Creates environments elsewhere, and keeps the processes of ended episodes for later ones.

    Args:
        start: starts a process, or connects to one. It can be pickled
        spec: of the environment
        options: validated keys of its table; None if it takes none
        timeout_s: time limit of each call in seconds
    """

    def __init__(
        self,
        start: Callable[[], RemoteObject],
        *,
        spec: EnvironmentSpec,
        options: BaseModel | None,
        timeout_s: float,
    ) -> None:
        self._start, self.spec, self._timeout_s = start, spec, timeout_s
        self._arguments = self.arguments(options.model_dump(mode="json") if options is not None else None)
        self._lock = threading.Lock()
        self._idle: list[RemoteObject] = []
        self._closed = False

    def arguments(self, values: Mapping[str, Any] | None) -> dict[str, Any]:
        """The arguments with which an environment is created there."""
        # An import path; ids of Gymnasium may have a colon, too.
        free = self.spec.config is None and ":" in self.spec.id
        return {"$options": {"values": values, "model": self.spec.config, "free": free}}

    def make(self) -> Any:
        """An environment: an `Environment` for one episode, or a ``gymnasium.Env``."""
        if self.spec.action == "control":
            return self.control_maker()()
        return RemoteChat(self, self.spec.target, self._arguments, timeout_s=self._timeout_s)

    def control_maker(self) -> Callable[[], gymnasium.Env[Any, Any]]:
        """A function that creates a ``gymnasium.Env``, and can be pickled."""
        return partial(remote_control, self._start, self.spec.target, self._arguments, timeout_s=self._timeout_s)

    def examine(self, start: Callable[[], RemoteObject] | None = None) -> Mapping[str, Any]:
        """Start a process, create an environment there, and return the `RemoteObject.greeting`.

        Args:
            start: starts or connects to a certain one

        Raises:
            UserError: there is no such interpreter, or the server is another one.
            EnvironmentFailure: it does not work, or cannot create the environment.
        """
        taken = self.take() if start is None else self._started(start, NoPlace)
        try:
            kind, target = self.spec.action, self.spec.target
            taken.create(kind, target, timeout_s=self._timeout_s, arguments=self._arguments)
            with contextlib.suppress(EnvironmentFailure):  # it may need a reset before it can be closed
                taken.release(timeout_s=self._timeout_s)
        except BaseException:
            taken.kill()
            raise
        if start is None:
            self.put_back(taken)
        else:
            taken.close()
        return taken.greeting

    def take(self) -> RemoteObject:
        """A process that no other episode uses. Raises as ``start``, but waits for a server."""
        with self._lock:
            while self._idle:
                found = self._idle.pop()
                if found.usable:
                    return found
                found.kill()
        return self._started(self._start, Unavailable)

    def _started(self, start: Callable[[], RemoteObject], waits_for: type[Unavailable]) -> RemoteObject:
        until = time.monotonic() + self._timeout_s
        while True:
            try:
                return start()
            except waits_for:
                if self._closed or time.monotonic() >= until:
                    raise
                time.sleep(WAIT_S)

    def put_back(self, process: RemoteObject) -> None:
        """Keep a process, without an object, for a later episode, if it can be reused."""
        if not process.reused:
            process.close()
            return
        with self._lock:
            if process.usable and not self._closed:
                self._idle.append(process)
                return
        process.kill()

    def close(self) -> None:
        """End the processes. A second call does nothing."""
        with self._lock:
            self._closed, idle = True, self._idle
            self._idle = []
        for each in idle:
            each.close()


def interpreters(
    spec: EnvironmentSpec, python: str | None = None, variables: Mapping[str, str] | None = None
) -> Callable[[], Interpreter]:
    """A function that starts the interpreter of an environment, by default this one, and can be pickled."""
    packages = lent_packages(spec.target)
    return partial(Interpreter, python or sys.executable, variables=dict(variables or {}), packages=packages)


def lent_packages(target: str) -> dict[str, Path]:
    """The packages of this installation that a target needs besides the libraries there: its own, and rlcore."""
    place = target.rpartition(":")[0]
    names = {"rlcore", *([] if place.endswith(".py") else [place.partition(".")[0]])}
    found = {}
    for name in sorted(names):
        spec = None
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            found[name] = Path(next(iter(spec.submodule_search_locations))).parent
    return found
