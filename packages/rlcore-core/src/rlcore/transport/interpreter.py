"""Another interpreter on this machine, in which functions are called and an object is held."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.errors import EnvironmentFailure
from rlcore.transport.inside.stops import stops_held
from rlcore.transport.process import INSIDE, ChildProcess, found_interpreter
from rlcore.transport.remote import RemoteObject, absolute
from rlcore.transport.variables import variables_for_child

START_S = 60.0
"""Time for an interpreter to greet, before it imports anything of the environment."""


class Interpreter(RemoteObject):
    """A process of another interpreter. It is started at once, and serves one call at a time.

    A process that ends, hangs, or breaks the protocol is killed; every later call fails. Create a new object then.

    Args:
        python: path of the interpreter
        variables: environment variables for it, besides those that are passed on (`variables.PASSED`)
        paths: folders for its ``sys.path``
        packages: packages of this installation that it may import if they are not installed there; name and parent
            folder of each

    Raises:
        UserError: there is no such interpreter.
        EnvironmentFailure: it cannot be started, or is not Python 3.8 or newer.
    """

    def __init__(
        self,
        python: str | Path,
        *,
        variables: Mapping[str, str] | None = None,
        paths: Sequence[str | Path] = (),
        packages: Mapping[str, str | Path] | None = None,
    ) -> None:
        self.python = os.fspath(python)
        command = [found_interpreter(self.python), "-u", "-X", "faulthandler", str(INSIDE / "child.py")]
        try:
            with stops_held():
                process = ChildProcess(command, variables_for_child(variables or {}), shares_memory=True)
        except OSError as error:
            raise EnvironmentFailure(f"the interpreter {self.python} cannot be started: {error}") from None
        super().__init__(process, f"the process of {self.python}")
        self.greeting = self._greeted()
        lent = {name: os.path.abspath(folder) for name, folder in (packages or {}).items()}
        self.request("prepare", {"paths": [os.path.abspath(path) for path in paths], "packages": lent}, START_S)

    def call(self, target: str, /, *, timeout_s: float, **arguments: Any) -> Any:
        """The result of a function there.

        Args:
            target: ``module:function`` or ``path/file.py:function``
            timeout_s: time limit in seconds
            arguments: keyword arguments of plain data and arrays

        Raises:
            EnvironmentFailure: it raised an exception, or its process failed.
            UserError: it raised one.
        """
        return self.request("call", {"target": absolute(target), "arguments": arguments}, timeout_s)

    def describe(self, target: str, names: Iterable[str], *, timeout_s: float) -> Mapping[str, Any]:
        """Import a target there, and return those attributes of it that are in ``names``. Raises as `call`."""
        found = self.request("describe", {"target": absolute(target), "names": list(names)}, timeout_s)
        return dict(found) if isinstance(found, dict) else {}

    def _greeted(self) -> Mapping[str, Any]:
        try:
            return self.greeted(START_S)
        except EnvironmentFailure as error:
            text = f"the interpreter {self.python} did not start as Python 3.8 or newer: {error}"
            raise EnvironmentFailure(text) from None


__all__ = ["Interpreter"]
