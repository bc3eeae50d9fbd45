"""A server of environments, a reward or a sandbox: each connection gets a place, which answers its requests.

A client with the token can ask for what the server offers, with any options, which may name code of an environment.
What it sends is untrusted otherwise: whatever breaks the protocol ends its connection.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rlcore.console.wording import counted
from rlcore.errors import RlcoreError
from rlcore.transport.inside.failures import described
from rlcore.transport.inside.messages import BrokenMessage
from rlcore.transport.inside.stream import Receiver, message_of
from rlcore.transport.inside.values import NotSendable
from rlcore.transport.network import Connection, accepted
from rlcore.transport.remote import Ended, NoPlace

LOOK_S = 0.2
"""Time between looks whether the server should stop."""
SEND_S = 60.0
"""Time in which a client must read an answer, or send the rest of a request."""
PAUSE_S = 5.0
"""Time before the next connection is accepted after one could not be."""
ROOM_S = 1.0
"""Time for which a new client waits here for a place. It may try again, also elsewhere."""
UNPROVEN = 128
"""Connections whose clients have not proved yet that they know the token. Others wait."""


class Place(Protocol):
    """What one connection has on the server. Its requests come one after the other."""

    @property
    def greeting(self) -> Mapping[str, Any]:
        """What the client receives first."""
        ...

    @property
    def usable(self) -> bool:
        """Whether it can answer a further request."""
        ...

    def answer(self, action: str, given: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """The ``value`` of an answer, or the ``error`` that was raised.

        Raises:
            RlcoreError: the answer is this error.
            BrokenMessage: what was given is not a request of a client.
        """
        ...

    def kill(self) -> None:
        """End it at once, also while another thread waits for an answer."""
        ...

    def leave(self) -> None:
        """Keep for a later connection what the client has left in order."""
        ...


class Offer(Protocol):
    """What a server offers.

    Attributes:
        offered: what it is, such as ``environment``, and its id
    """

    offered: tuple[str, str]

    def take(self) -> Place:
        """A place for a new connection. Raises `RlcoreError`."""
        ...

    def close(self) -> None:
        """End everything."""
        ...


class Server:
    """Serves what is offered.

    Args:
        offer: gives each connection its place
        named: what is offered, with its plugin and its version
        listening: a socket that listens
        token: what clients must know
        most: connections at a time
        timeout_s: longest time of a request in seconds; a client may ask for less
        say: prints a line
    """

    def __init__(
        self,
        offer: Offer,
        listening: socket.socket,
        *,
        named: str,
        token: str,
        most: int,
        timeout_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._offer, self._listening, self._named, self._token = offer, listening, named, token
        self._most, self._timeout_s, self._say = most, timeout_s, say
        self._room = threading.BoundedSemaphore(most)
        self._unproven = threading.BoundedSemaphore(UNPROVEN)
        self._connections: set[Connection] = set()
        self._stopped = threading.Event()

    def run(self) -> None:
        """Serve until `stop`."""
        self._listening.settimeout(LOOK_S)
        while not self._stopped.is_set():
            if not self._unproven.acquire(timeout=LOOK_S):
                continue
            try:
                connected, peer = self._listening.accept()
            except OSError as error:
                self._unproven.release()
                if not isinstance(error, TimeoutError):  # such as too many open files
                    self._say(f"warning   no connection can be accepted: {error.strerror or error}")
                    self._stopped.wait(PAUSE_S)
                continue
            threading.Thread(target=self._welcome, args=(connected, str(peer[0])), daemon=True).start()
        self._listening.close()
        for connection in list(self._connections):
            connection.kill()
        self._offer.close()

    def stop(self) -> None:
        """End all connections and their places."""
        self._stopped.set()

    def _welcome(self, connected: socket.socket, peer: str) -> None:
        connection = Connection(connected)
        self._connections.add(connection)
        try:
            try:
                known = accepted(connection, self._token)
            finally:
                self._unproven.release()
            if not known:
                self._say(f"refused   {peer}: it does not know the token")
            elif not self._room.acquire(timeout=ROOM_S):
                limit = f"{counted(self._most, 'connection')}, its limit (--most)"
                full = described(NoPlace(f"the server has {limit}"))
                _send(connection, {"id": 0, "error": {**full, "kind": "NoPlace", "ended": True}})
            else:
                try:
                    self._serve(connection)
                finally:
                    self._room.release()
        except Ended:
            pass
        except Exception as error:  # the boundary to a client, of which nothing is known
            self._say(f"ended     {peer} sent {error if isinstance(error, BrokenMessage) else repr(error)[:200]}")
        finally:
            self._connections.discard(connection)
            connection.close()

    def _serve(self, connection: Connection) -> None:
        """Answer the requests of a client, one after the other."""
        try:
            place = self._offer.take()
        except RlcoreError as error:
            _send(connection, {"id": 0, "error": {**described(error), "ended": True}})
            return
        clean, busy, done, lock = False, threading.Event(), threading.Event(), threading.Lock()
        threading.Thread(target=_watch, args=(connection, place, busy, done, lock), daemon=True).start()
        try:
            kind, id = self._offer.offered
            about = {kind: id, "named": self._named, "most": self._most, "clock": f"{time.time():.3f}"}
            _send(connection, {"id": 0, "value": {**place.greeting, **about}})
            receiver = Receiver()
            clean = True
            while True:
                request = receiver.receive(_whole_message(connection))
                clean = False
                busy.set()
                answer = self._answer(place, request)
                busy.clear()
                clean = request["action"] == "close" and "value" in answer
                _send(connection, answer)
                if answer.get("error", {}).get("ended"):
                    return
        finally:
            with lock:
                done.set()
            if clean and not self._stopped.is_set():
                place.leave()
            else:
                place.kill()

    def _answer(self, place: Place, request: Any) -> dict[str, Any]:
        """The answer to a request."""
        if not isinstance(request, dict) or not request.keys() >= {"id", "action", "with", "timeout_s"}:
            raise BrokenMessage("something else than a request")
        number, action, given, asked_s = (request[name] for name in ("id", "action", "with", "timeout_s"))
        names = [given.get(name) for name in ("name", "target") if name in given] if isinstance(given, dict) else [None]
        if not all(isinstance(text, str) for text in (action, *names)) or action not in ("create", "ask", "close"):
            raise BrokenMessage(f"a request that is not served: {action!r:.80}")
        if type(asked_s) not in (int, float) or not asked_s > 0:
            raise BrokenMessage(f"a time limit of {asked_s!r:.80}")
        try:
            answer = place.answer(action, given, min(asked_s, self._timeout_s))
        except RlcoreError as error:
            return {"id": number, "error": {**described(error), "ended": not place.usable}}
        return {**answer, "id": number}


def _whole_message(connection: Connection) -> Callable[[memoryview], int]:
    """Reads a message, which may begin at any time, but must then arrive in time."""
    deadline = math.inf

    def read_into(buffer: memoryview) -> int:
        nonlocal deadline
        count = connection.read_into(buffer, deadline)
        deadline = min(deadline, time.monotonic() + SEND_S)
        return count

    return read_into


def _watch(
    connection: Connection, place: Place, busy: threading.Event, done: threading.Event, lock: threading.Lock
) -> None:
    """Kill the place of a request if the client closes the connection meanwhile, so that it is free again."""
    while not done.wait(LOOK_S):
        with lock:  # once it is done, another connection may have the place
            if busy.is_set() and not done.is_set() and connection.closed_by_other():
                place.kill()


def _send(connection: Connection, answer: Mapping[str, Any]) -> None:
    try:
        message = message_of(answer)
    except NotSendable as error:
        message = message_of({"id": answer["id"], "error": {"type": "TypeError", "text": str(error)}})
    connection.write(message, time.monotonic() + SEND_S)


__all__ = ["Offer", "Place", "Server"]
