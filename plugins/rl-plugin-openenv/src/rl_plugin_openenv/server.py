"""A server that speaks the protocol of OpenEnv: sessions over ``/ws``, and descriptions over HTTP."""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from rlcore.json_files import parse_answer
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from rl_plugin_openenv.publishing import ACTION, OBSERVATION, STATE, Published, PublishedSession, Refused

MOST_BYTES = 16 * 2**20
"""Size of a message from a client."""


class OpenEnvServer:
    """Serves sessions of an environment.

    Args:
        published: the environment
        most: sessions at a time
        token: what clients must send as ``Authorization: Bearer TOKEN``; None asks for none
        say: prints a line
    """

    def __init__(self, published: Published, *, most: int, token: str | None, say: Callable[[str], None]) -> None:
        self._published, self._most, self._say = published, most, say
        self._expected = f"Bearer {token}" if token else None
        self._sessions = 0

    async def listen(self, listening: socket.socket) -> Server:
        """Accept clients on a socket, until the returned server is closed."""
        return await serve(
            self._session,
            sock=listening,
            process_request=self._answered,
            origins=[None],  # no pages of browsers
            compression=None,
            max_size=MOST_BYTES,
            server_header=None,
        )

    def _answered(self, connection: ServerConnection, request: Request) -> Response | None:
        """The answer to a request over HTTP; None for that of a session."""
        given = request.headers.get("Authorization", "")
        if self._expected is not None and not hmac.compare_digest(given.encode(), self._expected.encode()):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "a key is needed\n")
        path = request.path.partition("?")[0]
        if path == "/ws":
            return None
        pages: Mapping[str, Mapping[str, Any]] = {
            "/health": {"status": "healthy"},
            "/metadata": {"name": self._published.name, "description": self._published.description},
            "/schema": {"action": ACTION, "observation": OBSERVATION, "state": STATE},
        }
        if path not in pages:
            return connection.respond(HTTPStatus.NOT_FOUND, "there are /ws, /health, /metadata and /schema\n")
        response = connection.respond(HTTPStatus.OK, json.dumps(pages[path]))
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = "application/json"
        return response

    async def _session(self, connection: ServerConnection) -> None:
        if self._sessions >= self._most:
            message = f"the server has {self._most} sessions, its limit"
            await connection.send(_error(Refused("CAPACITY_REACHED", message)))
            return
        self._sessions += 1
        session = PublishedSession(self._published)
        try:
            async for text in connection:
                answer = await self._answer(session, text)
                if answer is None:
                    return
                await connection.send(answer)
        except ConnectionClosed:
            pass
        finally:
            self._sessions -= 1
            try:
                await session.close()
            except Refused as failed:
                self._say(f"warning   an environment cannot be closed: {failed}")

    async def _answer(self, session: PublishedSession, text: str | bytes) -> str | None:
        """The answer to a message; None if it ends the session."""
        try:
            request = parse_answer(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
        except ValueError as error:
            return _error(Refused("INVALID_JSON", f"Invalid JSON: {error}"))
        kind, data = (request.get("type"), request.get("data", {})) if isinstance(request, dict) else (None, {})
        if not isinstance(data, dict):
            return _error(Refused("VALIDATION_ERROR", "data must be an object"))
        try:
            if kind == "close":
                return None
            if kind == "state":
                return _message("state", session.state())
            if kind in ("reset", "step"):
                return _message("observation", await (session.reset(data) if kind == "reset" else session.step(data)))
            raise Refused("UNKNOWN_TYPE", f"Unknown message type: {str(kind)[:80]}")
        except Refused as refused:
            return _error(refused)


def _message(kind: str, data: Mapping[str, Any]) -> str:
    return json.dumps({"type": kind, "data": data})


def _error(refused: Refused) -> str:
    errors = {"errors": list(refused.errors)} if refused.errors else {}
    return _message("error", {"message": str(refused), "code": refused.code, **errors})


__all__ = ["OpenEnvServer"]
