"""Answers the requests of the parent, one after the other, until it closes the connection."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any, Callable, NoReturn

from .failures import described
from .objects import Objects
from .shared_arrays import SharedArrays
from .stream import Receiver, message_of
from .targets import describe, find_packages, load_target
from .values import NotSendable


def serve(connection: int, memory: int) -> NoReturn:
    """Greet the parent and serve it.

    Args:
        connection: descriptor of a stream socket
        memory: descriptor of the shared memory
    """
    Server(socket.socket(fileno=connection), SharedArrays(memory)).run()


class Server:
    """One connection with the object that was created for it."""

    def __init__(self, connection: socket.socket, memory: SharedArrays) -> None:
        self._connection, self._memory = connection, memory
        self._receiver = Receiver(memory)
        self._objects = Objects()
        self._actions: dict[str, Callable[..., Any]] = {
            "prepare": find_packages,
            "call": lambda target, arguments: load_target(target)(**arguments),
            "describe": describe,
            "create": self._objects.create,
            "ask": self._objects.ask,
            "close": self._objects.close,
        }

    def run(self) -> NoReturn:
        """Serve until the connection closes."""
        self._send({"id": 0, "value": greeting()})
        while True:
            request = self._receiver.receive(self._read_into)
            try:
                answer = {"id": request["id"], "value": self._actions[request["action"]](**request["with"])}
                message = message_of(answer, self._memory)
            except NotSendable as error:
                text = "the answer cannot be sent: {}".format(str(error).replace("value.", "", 1))
                message = message_of({"id": request["id"], "error": {"type": "TypeError", "text": text}}, self._memory)
            except BaseException as error:
                message = message_of({"id": request["id"], "error": described(error)}, self._memory)
            answer = {}
            self._connection.sendall(message)

    def _send(self, value: Any) -> None:
        self._connection.sendall(message_of(value, self._memory))

    def _read_into(self, buffer: memoryview) -> int:
        return self._connection.recv_into(buffer) or self._end()

    def _end(self) -> NoReturn:
        """End at once: a thread of a simulator must not keep the process alive."""
        try:
            self._objects.close()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(0)


def greeting() -> dict[str, Any]:
    """What runs here."""
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "numpy": _version("numpy"),
        "gymnasium": _version("gymnasium"),
    }


def _version(name: str) -> str | None:
    """The version of a distribution, from the name of its folder. The import of `importlib.metadata` takes long."""
    for folder in sys.path:
        try:
            entries = os.listdir(folder)
        except OSError:
            continue
        for entry in entries:
            stem, ending = os.path.splitext(entry)
            if ending in (".dist-info", ".egg-info") and stem.lower().startswith(name + "-"):
                return stem.split("-")[1]
    return None
