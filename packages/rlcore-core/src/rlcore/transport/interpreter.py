"""Another interpreter on this machine, in which functions are called and an object is held."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.errors import EnvironmentFailure, SandboxFailure, ToolFailure, UserError
from rlcore.redaction import redact
from rlcore.transport.inside.messages import BrokenMessage
from rlcore.transport.inside.stream import Receiver, message_of
from rlcore.transport.inside.values import NotSendable
from rlcore.transport.process import ChildProcess, Ended

START_S = 60.0
"""Time for an interpreter to greet, before it imports anything of the environment."""
RAISED = {"ToolFailure": ToolFailure, "SandboxFailure": SandboxFailure}


class Interpreter:
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
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._count = 0
        self._answered = True
        """Whether the last request has its answer."""
        self._child = ChildProcess(self.python, variables or {})
        self._receiver = Receiver(self._child.memory)
        self.greeting: Mapping[str, Any] = self._greeted()
        """What runs there: ``python``, ``numpy`` and ``gymnasium`` versions (None if not installed), ``executable``."""
        lent = {name: os.path.abspath(folder) for name, folder in (packages or {}).items()}
        self._request("prepare", START_S, paths=[os.path.abspath(path) for path in paths], packages=lent)

    @property
    def usable(self) -> bool:
        """Whether it still runs, as far as known."""
        return not self._child.ended and os.getpid() == self._owner

    @property
    def busy(self) -> bool:
        """Whether a call of another thread waits for its answer."""
        return self._lock.locked()

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
        return self._request("call", timeout_s, target=absolute(target), arguments=arguments)

    def describe(self, target: str, names: Iterable[str], *, timeout_s: float) -> Mapping[str, Any]:
        """Import a target there, and return those attributes of it that are in ``names``. Raises as `call`."""
        found = self._request("describe", timeout_s, target=absolute(target), names=list(names))
        return dict(found) if isinstance(found, dict) else {}

    def create(self, kind: str, target: str, *, timeout_s: float, arguments: Mapping[str, Any]) -> Any:
        """Create an object there, in place of the former one, and return its description. Raises as `call`.

        Args:
            kind: ``object`` for any object, ``control`` for a ``gymnasium.Env``, or ``chat`` for an `Environment`
            target: a class or function, as in `call`
            timeout_s: time limit in seconds, which includes the imports
            arguments: keyword arguments
        """
        return self._request("create", timeout_s, kind=kind, target=absolute(target), arguments=dict(arguments))

    def ask(self, name: str, *positional: Any, timeout_s: float, **named: Any) -> Any:
        """The result of a method of the object. Raises as `call`."""
        return self._request("ask", timeout_s, name=name, positional=list(positional), named=named)

    def release(self, *, timeout_s: float) -> None:
        """Close the object, and keep the process for another one. Raises as `call`."""
        self._request("close", timeout_s)

    def close(self) -> None:
        """End the process. A second call does nothing."""
        self._child.close()

    def kill(self) -> None:
        """End the process at once, also during a call of another thread."""
        self._child.kill()

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _greeted(self) -> Mapping[str, Any]:
        deadline = time.monotonic() + START_S
        try:
            return _mapping(self._receive(0, deadline, START_S, "its start"))
        except EnvironmentFailure as error:
            text = f"the interpreter {self.python} did not start as Python 3.8 or newer: {error}"
            raise EnvironmentFailure(text) from None

    def _request(self, action: str, timeout_s: float, **given: Any) -> Any:
        """Send a request, and return the value of its answer."""
        with self._lock:
            what = str(given.get("name") or given.get("target") or action)
            if os.getpid() != self._owner:
                raise EnvironmentFailure(
                    f"{what} cannot be called: the process of {self.python} belongs to the parent of this fork"
                )
            if self._child.ended:
                raise EnvironmentFailure(f"{what} cannot be called: the process of {self.python} has ended")
            deadline = time.monotonic() + timeout_s
            self._count += 1
            try:
                message = message_of({"id": self._count, "action": action, "with": given}, self._child.memory)
            except NotSendable as error:
                raise EnvironmentFailure(f"the arguments of {what} cannot be sent: {error}") from None
            self._answered = False
            try:
                if self._child.unread():
                    raise BrokenMessage("bytes that were not asked for")
                self._child.write(message, deadline)
                return self._receive(self._count, deadline, timeout_s, what)
            except (Ended, BrokenMessage) as error:
                raise self._failed(error, what, timeout_s) from None
            except BaseException:
                if not self._answered:
                    self._child.kill()  # such as Ctrl-C: a late answer must not be taken for the next one
                raise

    def _receive(self, number: int, deadline: float, timeout_s: float, what: str) -> Any:
        try:
            answer = _mapping(self._receiver.receive(lambda buffer: self._child.read_into(buffer, deadline)))
            if answer.get("id") != number or not answer.keys() <= {"id", "value", "error"} or len(answer) != 2:
                raise BrokenMessage("an answer that does not belong to the request")
            error = _mapping(answer["error"]) if "error" in answer else None
        except (Ended, BrokenMessage, EOFError) as broken:
            raise self._failed(broken, what, timeout_s) from None
        self._answered = True
        if error is not None:
            raise raised(what, error)
        return answer["value"]

    def _failed(self, error: Exception, what: str, timeout_s: float) -> EnvironmentFailure:
        """Kill the process, and return why."""
        if isinstance(error, Ended) and error.late:
            reason = f"did not answer within {timeout_s:g} s"
        elif isinstance(error, Ended):
            reason = str(error)
        else:
            reason = f"sent {error}"
        printed = self._child.printed()
        self._child.kill()
        tail = f"; it printed last: {printed}" if printed else ""
        return EnvironmentFailure(redact(f"{what}: the process of {self.python} {reason}{tail}"))


def raised(what: str, error: Mapping[str, Any]) -> Exception:
    """The exception for one that was raised there."""
    parts = {name: str(error[name]) for name in ("message", "found", "where", "fix") if name in error}
    if error.get("kind") == "UserError":
        text = parts.pop("message", str(error.get("text")))
        return UserError(text, **parts)
    place = f" ({error['place']})" if error.get("place") else ""
    text = redact(f"{what} raised {error.get('type')}: {error.get('text')}{place}")
    failure = RAISED.get(str(error.get("kind")), EnvironmentFailure)(text)
    if error.get("trace"):
        failure.add_note(f"In the other interpreter (most recent call last):\n{error['trace']}")
    return failure


def absolute(target: str) -> str:
    """A target whose file has an absolute path, because the other process may run in another folder."""
    place, colon, name = target.rpartition(":")
    return f"{os.path.abspath(place)}{colon}{name}" if place.endswith(".py") else target


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BrokenMessage(f"a {type(value).__name__} in place of an object")
    return value


__all__ = ["Interpreter"]
