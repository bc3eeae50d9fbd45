"""An object on the other side of a connection, in another interpreter or on another machine."""

from __future__ import annotations

import math
import os
import select
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from rlcore.errors import EnvironmentFailure, SandboxFailure, ToolFailure, UserError
from rlcore.redaction import redact
from rlcore.transport.inside.messages import BrokenMessage
from rlcore.transport.inside.shared_arrays import SharedArrays
from rlcore.transport.inside.stream import Receiver, message_of
from rlcore.transport.inside.values import NotSendable


class Unavailable(EnvironmentFailure):
    """No server can be used, but one may be later."""


class NoPlace(Unavailable):
    """A server has as many connections as it may have."""


LONGEST = 4000
"""Characters of a text of the other side that are kept."""


RAISED = {"ToolFailure": ToolFailure, "SandboxFailure": SandboxFailure, "NoPlace": NoPlace}


class Ended(Exception):
    """The other side has ended, closed the connection, or was too slow. The message says which."""

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.late = late


class Channel(ABC):
    """A connection to the other side, which sends and receives bytes.

    Args:
        connected: a stream socket
    """

    memory: SharedArrays | None = None
    """Memory that both sides share; None over a network."""

    def __init__(self, connected: socket.socket) -> None:
        self._connection = connected
        connected.setblocking(False)

    def write(self, data: bytes | bytearray, deadline: float) -> None:
        """Send bytes, until ``deadline`` of ``time.monotonic``.

        Raises:
            Ended: the other side has ended, or does not read.
        """
        rest = memoryview(data)
        while len(rest):
            try:
                rest = rest[self._connection.send(rest) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline)
            except OSError as error:
                raise Ended(self._why_closed(error)) from None

    def read_into(self, buffer: memoryview, deadline: float) -> int:
        """Wait for bytes, and write them to the beginning of a buffer. Returns their number. Raises as `write`."""
        while True:
            self._wait(select.POLLIN, deadline)
            try:
                count = self._connection.recv_into(buffer)
            except BlockingIOError:
                continue
            except OSError as error:
                raise Ended(self._why_closed(error)) from None
            if not count:
                raise Ended(self._why_closed())
            return count

    def unread(self) -> bool:
        """Whether there are bytes that were not asked for.

        Raises:
            Ended: the connection is closed.
        """
        try:
            found = self._connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError as error:
            raise Ended(self._why_closed(error)) from None
        if not found:
            raise Ended(self._why_closed())
        return True

    def why(self, error: Exception, timeout_s: float = math.inf) -> str:
        """Why a message was not answered, with what was printed last. The other side is ended.

        Args:
            error: an `Ended`, or the description of what it sent
            timeout_s: the time limit of the answer
        """
        reason = str(error) if isinstance(error, Ended) else f"sent {error}"
        if isinstance(error, Ended) and error.late:
            reason = f"did not answer within {timeout_s:g} s"
        tail = self.tail()
        self.kill()
        return reason + tail

    def tail(self) -> str:
        """The end of a message about the other side: what it printed last."""
        printed = self.printed()
        return f"; it printed last: {redact(printed)}" if printed else ""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether it has ended, as far as known."""

    @abstractmethod
    def printed(self) -> str:
        """The last lines that the other side printed; empty if they are not known."""

    @abstractmethod
    def close(self) -> None:
        """End it. A second call does nothing."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once, also during a call of another thread. A second call does nothing."""

    @abstractmethod
    def _wait(self, event: int, deadline: float) -> None:
        """Wait for an event of ``poll``. Raises as `write`."""

    @abstractmethod
    def _why_closed(self, error: OSError | None = None) -> str:
        """Why the connection is closed."""


class RemoteObject:
    """Serves one call at a time. After a failure of the other side, every later call fails.

    Args:
        channel: the connection
        named: the other side, for messages, such as ``the process of /usr/bin/python``

    Attributes:
        greeting: what runs there: versions of ``python``, ``numpy`` and ``gymnasium`` (None if not installed), and
            ``executable``
    """

    greeting: Mapping[str, Any]
    reused: ClassVar[bool] = True
    """Whether it is kept for the next episode."""

    def __init__(self, channel: Channel, named: str) -> None:
        self._channel, self._named = channel, named
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._count = 0
        self._answered = True
        """Whether the last request has its answer."""
        self._receiver = Receiver(channel.memory)

    @property
    def usable(self) -> bool:
        """Whether it still runs, as far as known."""
        return not self._channel.ended and os.getpid() == self._owner

    @property
    def busy(self) -> bool:
        """Whether a call of another thread waits for its answer."""
        return self._lock.locked()

    def create(self, kind: str, target: str, *, timeout_s: float, arguments: Mapping[str, Any]) -> Any:
        """Create an object there, in place of the former one, and return its description.

        Args:
            kind: ``object`` for any object, ``control`` for a ``gymnasium.Env``, or ``chat`` for an `Environment`
            target: a class or function, ``module:attribute`` or ``path/file.py:attribute``
            timeout_s: time limit in seconds, which includes the imports
            arguments: keyword arguments

        Raises:
            EnvironmentFailure: it raised an exception, or the other side failed.
            UserError: it raised one.
        """
        given = {"kind": kind, "target": absolute(target), "arguments": dict(arguments)}
        return self.request("create", given, timeout_s)

    def ask(self, name: str, *positional: Any, timeout_s: float, **named: Any) -> Any:
        """The result of a method of the object. Raises as `create`."""
        return self.request("ask", {"name": name, "positional": list(positional), "named": named}, timeout_s)

    def release(self, *, timeout_s: float) -> None:
        """Close the object, and keep the connection for another one. Raises as `create`."""
        self.request("close", {}, timeout_s)

    def close(self) -> None:
        """End the connection. A second call does nothing."""
        self._channel.close()

    def kill(self) -> None:
        """End it at once, also during a call of another thread."""
        self._channel.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(self, action: str, given: Mapping[str, Any], timeout_s: float) -> Any:
        """The value of the answer to a request. Raises as `create`."""
        what, answer = _what(action, given), self.answer(action, given, timeout_s)
        if "error" not in answer:
            return answer["value"]
        error = answer["error"]
        if error.get("ended"):
            self.kill()
        raise raised(what, error)

    def answer(self, action: str, given: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """The answer to a request, with a ``value`` or the ``error`` that was raised there.

        Raises:
            Unavailable: the other side had ended before the request was sent.
            EnvironmentFailure: it failed.
        """
        with self._lock:
            what = _what(action, given)
            if os.getpid() != self._owner:
                raise EnvironmentFailure(f"{what} cannot be called: {self._named} belongs to the parent of this fork")
            if self._channel.ended:
                raise Unavailable(f"{what} cannot be called: {self._named} has ended")
            deadline = time.monotonic() + timeout_s
            self._count += 1
            try:
                whole = {"id": self._count, "action": action, "with": dict(given), "timeout_s": timeout_s}
                message = message_of(whole, self._channel.memory)
            except NotSendable as error:
                raise EnvironmentFailure(f"the arguments of {what} cannot be sent: {error}") from None
            self._answered = False
            try:
                if self._channel.unread():
                    raise BrokenMessage("bytes that were not asked for")
                self._channel.write(message, deadline)
                answer = self._received(self._count, deadline, timeout_s, what)
                if action == "close" and self._channel.memory is not None:
                    self._channel.memory.clear()
                return answer
            except (Ended, BrokenMessage) as error:
                raise self._failed(error, what, timeout_s) from None
            except BaseException:
                if not self._answered:
                    self.kill()  # such as Ctrl-C: a late answer must not be taken for the next one
                raise

    def greeted(self, timeout_s: float) -> Mapping[str, Any]:
        """What the other side sends first.

        Raises:
            EnvironmentFailure: it failed.
            UserError: it sent one.
        """
        what = "its start"
        answer = self._received(0, time.monotonic() + timeout_s, timeout_s, what)
        if "error" in answer:
            self.kill()
            raise raised(what, answer["error"])
        try:
            found = _mapping(answer["value"])
        except BrokenMessage as broken:
            raise self._failed(broken, what, timeout_s) from None
        return {str(name): _plain(value) for name, value in found.items()}

    def _received(self, number: int, deadline: float, timeout_s: float, what: str) -> Mapping[str, Any]:
        try:
            answer = _mapping(self._receiver.receive(lambda buffer: self._channel.read_into(buffer, deadline)))
            known = answer.keys() in ({"id", "value"}, {"id", "error"})
            if not known or type(answer["id"]) is not int or answer["id"] != number:
                raise BrokenMessage("an answer that does not belong to the request")
            if "error" in answer:
                error = _mapping(answer["error"])
                answer = {**answer, "error": {str(name): _plain(value) for name, value in error.items()}}
        except (Ended, BrokenMessage, EOFError) as broken:
            raise self._failed(broken, what, timeout_s) from None
        self._answered = True
        return answer

    def _failed(self, error: Exception, what: str, timeout_s: float) -> EnvironmentFailure:
        """End the connection, and return why."""
        return EnvironmentFailure(redact(f"{what}: {self._named} {self._channel.why(error, timeout_s)}"))


def raised(what: str, error: Mapping[str, Any]) -> Exception:
    """The exception for one that was raised there."""
    parts = {name: str(error[name]) for name in ("message", "found", "where", "fix") if name in error}
    if error.get("kind") == "UserError":
        text = parts.pop("message", str(error.get("text")))
        return UserError(text, **parts)
    place = f" ({error['place']})" if error.get("place") else ""
    text = str(error.get("text")) if error.get("ended") else f"{what} raised {error.get('type')}: {error.get('text')}"
    failure = RAISED.get(str(error.get("kind")), EnvironmentFailure)(redact(f"{text}{place}"))
    if error.get("trace"):
        failure.add_note(f"In the other interpreter (most recent call last):\n{error['trace']}")
    return failure


def absolute(target: str) -> str:
    """A target whose file has an absolute path, because the other process may run in another folder."""
    place, colon, name = target.rpartition(":")
    return f"{os.path.abspath(place)}{colon}{name}" if place.endswith(".py") else target


def _what(action: str, given: Mapping[str, Any]) -> str:
    return str(given.get("name") or given.get("target") or action)


def _plain(value: Any) -> Any:
    """A text of bounded length, a small integer or a boolean; None for everything else."""
    if isinstance(value, str):
        return value[:LONGEST]
    return value if type(value) in (bool, int) and abs(value) < 2**31 else None


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BrokenMessage(f"a {type(value).__name__} in place of an object")
    return value


__all__ = ["Channel", "Ended", "NoPlace", "RemoteObject", "Unavailable", "absolute", "raised"]
