"""A session with an OpenEnv server: a WebSocket that carries one request at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rlcore.endpoints.answers import excerpt, without_key
from rlcore.endpoints.options import is_local
from rlcore.errors import EnvironmentFailure
from rlcore.json_files import parse_answer
from rlcore.plain_json import whole
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

MOST_BYTES = 16 * 2**20
"""Size of a message from a server."""
LONGEST_CONNECT_S = 30.0
PING_S = 20.0
"""Interval of pings, which keep proxies from closing the connection while the model answers. A missing pong does not
end the session, because a server that computes a step for a long time does not answer pings either."""
CLOSE_S = 1.0
"""Time for a server to end the session."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 2.0
"""Times between attempts to get a place in a server that has no room for another session."""


class Rejected(EnvironmentFailure):
    """The server answered with an error.

    Attributes:
        code: as in ``WSErrorCode`` of OpenEnv, such as ``VALIDATION_ERROR``
        details: the errors of a rejected action, as text
    """

    def __init__(self, message: str, code: str, details: str) -> None:
        self.code, self.details = code, details
        super().__init__(message)


class Session:
    """One session. The server creates an environment for it, and closes it with the session.

    Args:
        url: of the server, ``http`` or ``https``
        key: for the header ``Authorization``; None sends none
    """

    def __init__(self, url: str, key: str | None) -> None:
        self._url, self._key = url, key
        self._connection: ClientConnection | None = None

    async def reset(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Connect, and reset the environment. Waits while the server has no room.

        Raises:
            EnvironmentFailure: the server cannot be reached, or failed.
        """
        wait_s = FIRST_WAIT_S
        while True:
            await self.close()
            try:
                self._connection = await self._connected()
                return await self.ask("reset", arguments)
            except Rejected as rejected:
                if rejected.code != "CAPACITY_REACHED":
                    raise
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def ask(self, kind: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to a ``reset`` or a ``step``: an object with ``observation``, ``reward`` and ``done``.

        Raises:
            Rejected: the server answered with an error.
            EnvironmentFailure: there is no valid answer.
        """
        connection = self._connection
        if connection is None:
            raise EnvironmentFailure("the session with the OpenEnv server is closed")
        unasked = await _received(connection)
        if unasked is not None:
            self._content(unasked)  # raises if it says why the session cannot begin
            raise self._failure("sent a message that was not asked for", unasked)
        with suppress(ConnectionClosed):  # the reason may have been received
            await connection.send(json.dumps({"type": kind, "data": data}))
        try:
            return self._content(await connection.recv())
        except ConnectionClosed as closed:
            raise self._failure(f"closed the connection during a {kind}", str(closed)) from None

    async def close(self) -> None:
        """End the session. A second call does nothing."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            # A transport of asyncio that has been closed already may raise AttributeError when it is aborted.
            with suppress(WebSocketException, TimeoutError, AttributeError):
                async with asyncio.timeout(CLOSE_S):
                    await connection.send('{"type": "close"}')
                await connection.close()
        finally:
            if not connection.transport.is_closing():  # the wait was cancelled
                connection.transport.abort()

    async def _connected(self) -> ClientConnection:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            return await _Direct(
                "ws" + self._url.removeprefix("http") + "/ws",
                additional_headers=headers,
                user_agent_header="rlcore",
                proxy=None if is_local(self._url) else True,
                compression=None,
                open_timeout=LONGEST_CONNECT_S,
                close_timeout=CLOSE_S,
                ping_interval=PING_S,
                ping_timeout=None,
                max_size=MOST_BYTES,
            )
        except TimeoutError:
            raise self._failure(f"did not open a session within {LONGEST_CONNECT_S:g} s") from None
        except OSError as error:
            raise self._failure("cannot be reached", error.strerror or str(error)) from None
        except (WebSocketException, ValueError) as error:
            raise self._failure("did not open a session", str(error)) from None

    def _content(self, text: str | bytes) -> Mapping[str, Any]:
        """The data of an answer."""
        try:
            answer = parse_answer(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
        except ValueError as error:
            raise self._failure(f"sent an answer that is not JSON ({error})", text) from None
        kind, data = (answer.get("type"), answer.get("data")) if isinstance(answer, dict) else (None, None)
        if kind == "error" and isinstance(data, dict):
            raise self._rejected(data)
        if kind != "observation" or not isinstance(data, dict):
            raise self._failure("sent an answer without an observation", text)
        return data

    def _rejected(self, data: Mapping[str, Any]) -> Rejected:
        code = data.get("code")
        message = data.get("message")
        failure = self._failure(f"answered with the error {excerpt(str(code))}", str(message))
        return Rejected(str(failure), code if isinstance(code, str) else "", _details(data.get("errors")))

    def _failure(self, what: str, found: str | bytes = "") -> EnvironmentFailure:
        text = f"the OpenEnv server {self._url} {what}" + (f": {excerpt(found)}" if found else "")
        return EnvironmentFailure(without_key(whole(text), self._key))


class _Direct(connect):
    """A connection without redirects, which could lead the key to another server."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """The error of a redirect."""
        return exc


async def _received(connection: ClientConnection) -> str | bytes | None:
    """A message that has arrived already; None if there is none."""
    try:
        async with asyncio.timeout(0):
            return await connection.recv()
    except (TimeoutError, ConnectionClosed):
        return None


def _details(errors: object) -> str:
    """What a validation of pydantic found, as a line for the model."""
    if not isinstance(errors, list):
        return ""
    found = []
    for error in errors[:8]:
        if isinstance(error, dict):
            place, message = error.get("loc"), error.get("msg")
            names = ".".join(map(str, place)) if isinstance(place, list) else ""
            found.append(f"{names}: {message}" if names else str(message))
    return excerpt(whole("; ".join(found))) if found else ""


__all__ = ["Rejected", "Session"]
