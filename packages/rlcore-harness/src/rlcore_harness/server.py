"""The server of a process: agents ask the policy of their episode in the API that their SDK speaks.

One server in a thread serves all episodes. `policy_server` starts it. A request's key selects the episode.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import logging
import os
import resource
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, cast

import uvicorn
from rlcore.errors import EngineError, EpisodeEnded
from rlcore.harnesses import EpisodePolicy
from rlcore.transport.network import in_url
from rlcore.types import Stop
from uvicorn.protocols.http.h11_impl import H11Protocol

from rlcore_harness.dialects import anthropic, chat, responses
from rlcore_harness.dialects.request import (
    MOST_CHOICES,
    Dialect,
    Refusal,
    event,
    finite,
    name,
    parse,
    table,
    whole,
)
from rlcore_harness.session import Exchange, Session, Sessions, ended

log = logging.getLogger("rlcore.harness")
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
LARGEST_BODY = 32 * 2**20
MOST_ARRIVING = 8 * LARGEST_BODY
"""Bytes of the bodies of a session that have not arrived completely."""
MOST_CONNECTIONS = 4096
"""Connections at a time, and at most half of the files that this process may open."""
BACKLOG = 256
"""Connections that are accepted before others are closed."""
BODY_S = 60.0
"""Time in which a client must send a body."""
ALIVE_S = 10.0
"""Time between comments in a stream whose answer is not sampled yet. Errors before the first one have a status."""
KEPT_OPEN_S = 600
"""Time for which an unused connection stays open. SDKs reuse theirs, also after a tool that takes minutes."""
DIALECTS: Mapping[str, ModuleType] = {"/chat/completions": chat, "/responses": responses, "/messages": anthropic}
METHODS = {**dict.fromkeys([*DIALECTS, "/reward"], "POST"), "/models": "GET"}
FULL = "this model's maximum context length is reached"
"""litellm repeats every other refused request for minutes, whatever its headers say."""
ENDS = {
    Stop.LENGTH: ("context_length_exceeded", f"T{FULL[1:]}: {{}}"),
    Stop.MAX_TURNS: ("max_turns", f"{{}}; repeating the request does not help, as when {FULL}"),
}
"""Code and message of errors when the policy no longer answers."""


class _Connection(H11Protocol):
    """A connection. Without a request it gives way to new ones, so that a client cannot use up this process's files."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2):
            idle = [each for each in self.connections if isinstance(each, _Connection) and each._is_idle()]
            min(idle, key=lambda each: each._since).transport.abort()  # the oldest; this one is idle as well

    def _is_idle(self) -> bool:
        return not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete)


class PolicyServer:
    """The ASGI application, and its thread. `policy_server` creates that of this process.

    Args:
        listening: a socket that listens

    Attributes:
        root_url: the address of the server, without ``/v1``
    """

    def __init__(self, listening: socket.socket) -> None:
        self._sessions = Sessions()
        address, self._port = listening.getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
        self.root_url = f"http://{in_url(host)}:{self._port}"
        config = uvicorn.Config(
            cast(Any, self._answer),
            interface="asgi3",
            proxy_headers=False,
            http=_Connection,
            backlog=BACKLOG,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEPT_OPEN_S,
        )
        server = uvicorn.Server(config)
        threading.Thread(
            target=server.run, kwargs={"sockets": [listening]}, name="rlcore-policy-server", daemon=True
        ).start()

    @contextmanager
    def session(
        self, policy: EpisodePolicy, *, loop: asyncio.AbstractEventLoop, key: str | None = None
    ) -> Iterator[Session]:
        """Answer requests with a key until the end of the block, which cancels those in flight.

        Enter and leave the block in ``loop``.

        Args:
            policy: answers the requests, in ``loop``
            loop: the event loop of the sampler
            key: what requests must know; None draws a key. A key can be used again after its session.

        Raises:
            ValueError: another session with the key is open.
        """
        session = Session(policy, loop, self.root_url, key or secrets.token_urlsafe(32))
        self._sessions.open(session)
        try:
            yield session
        finally:
            session.end()
            self._sessions.close(session)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = scope["path"].removeprefix("/v1")
        dialect = cast(Dialect, anthropic if route.startswith("/messages") else chat)
        try:
            await self._routed(route, cast(Dialect, DIALECTS.get(route, dialect)), scope, receive, send)
        except Exception as error:
            refusal = _refusal(error)
            await _send(send, dialect.error(refusal.status, str(refusal), refusal.code), refusal.status)

    async def _routed(self, route: str, dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        if not self._is_our_host(headers.get("host", "")):
            raise Refusal(f"the address of the server is {self.root_url}", status=403)
        known = "/models" if route.startswith("/models/") else route
        if known not in METHODS:
            routes = ", ".join(f"/v1{each}" for each in METHODS if each != "/reward")
            message = f"there is no such route; the server has {routes}, and in training /v1/reward"
            raise Refusal(message, status=404)
        if scope["method"] != METHODS[known]:
            raise Refusal(f"the method of this route is {METHODS[known]}", status=405)
        session = self._sessions.of(_key(headers))
        with session.request():
            if known == "/models":
                await _send(send, _models(route.removeprefix("/models").removeprefix("/")))
                return
            content = await _read(receive, headers, session)
            if route == "/reward":
                await _reward(session, content)
                await _send(send, {"ok": True})
                return
            digest = hashlib.sha256(route.encode() + b"\0" + content).digest()
            retry = headers.get("x-stainless-retry-count", "0") != "0"
            request = dialect.read(_object(content))
            del content  # a turn can take minutes
            with session.exchange(digest, dialect, request, retry) as exchange:
                await _Delivery(exchange, receive, send).run()

    def _is_our_host(self, value: str) -> bool:
        """Whether a request is for this server. A page in a browser can direct its own name to this machine."""
        name, _, port = value.lower().rpartition(":")
        if port != str(self._port):
            return False
        with suppress(ValueError):
            return bool(ipaddress.ip_address(name.strip("[]")))
        return name in ("localhost", socket.gethostname().lower())


class _Delivery:
    """Sends the answer of an exchange to one client, unless the client leaves before."""

    def __init__(self, exchange: Exchange, receive: Receive, send: Send) -> None:
        self._exchange, self._receive, self._send = exchange, receive, send
        self._changed = asyncio.Event()
        self._gone = self._begun = False

    async def run(self) -> None:
        loop, exchange = asyncio.get_running_loop(), self._exchange
        exchange.outcome.add_done_callback(lambda _: loop.call_soon_threadsafe(self._changed.set))
        watcher = loop.create_task(self._watch())
        try:
            while not self._gone and not exchange.outcome.done():
                with suppress(TimeoutError):
                    async with asyncio.timeout(ALIVE_S if exchange.request.stream else None):
                        await self._changed.wait()
                        continue
                await self._begin()
                await self._send({"type": "http.response.body", "body": b": sampling\n\n", "more_body": True})
            if not self._gone:
                await self._deliver()
        finally:
            watcher.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._changed.set()

    async def _deliver(self) -> None:
        exchange = self._exchange
        try:
            body = exchange.body()
        except Exception as error:
            if not self._begun:
                raise
            refusal = _refusal(error)
            problem = exchange.dialect.error(refusal.status, str(refusal), refusal.code)
            await self._send({"type": "http.response.body", "body": event(problem, "error")})
            return
        await self._begin(None if exchange.request.stream else len(body))
        # Only a client that is still there gets the last byte, so that an answer is either complete or withdrawn.
        await self._send({"type": "http.response.body", "body": body[:-1], "more_body": True})
        await self._send({"type": "http.response.body", "body": b"", "more_body": True})  # waits for a slow client
        for _ in range(2):  # the loss of the connection, and the end of `_watch`
            await asyncio.sleep(0)
        if not self._gone:
            exchange.delivered = True
            await self._send({"type": "http.response.body", "body": body[-1:]})

    async def _begin(self, length: int | None = None) -> None:
        if not self._begun:
            self._begun = True
            kind = b"application/json" if length is not None else b"text/event-stream; charset=utf-8"
            headers: Headers = [(b"content-type", kind), (b"cache-control", b"no-store")]
            if length is not None:
                headers.append((b"content-length", str(length).encode()))
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})


async def _send(send: Send, content: Mapping[str, Any], status: int = 200) -> None:
    body = json.dumps(content).encode()
    headers: Headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status >= 400:
        headers.append((b"x-should-retry", b"true" if status == 429 else b"false"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _read(receive: Receive, headers: Mapping[str, str], session: Session) -> bytes:
    """The body of a request. Raises `Refusal`."""
    too_large = Refusal(f"the body has more than {LARGEST_BODY:,} bytes", status=413)
    with suppress(ValueError):
        if int(headers.get("content-length", "")) > LARGEST_BODY:
            raise too_large
    parts, size, more = list[bytes](), 0, True
    try:
        async with asyncio.timeout(BODY_S):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refusal("the client left before the end of the body")
                parts.append(message["body"])
                size, more = size + len(parts[-1]), message["more_body"]
                session.arriving += len(parts[-1])
                if size > LARGEST_BODY:
                    raise too_large
                if session.arriving > MOST_ARRIVING:
                    raise Refusal("too many large requests at a time", status=429, code="rate_limit_exceeded")
    except TimeoutError:
        raise Refusal(f"the body did not arrive within {BODY_S:g} s", status=408) from None
    finally:
        session.arriving -= size
    return b"".join(parts)


async def _reward(session: Session, content: bytes) -> None:
    body = _object(content)
    response = body.get("turn")
    response = None if response is None else name(response, "turn")
    choice = whole(body, "choice", 0, MOST_CHOICES - 1) or 0
    await session.reward(finite(body.get("value"), "value"), response, choice)


def _object(content: bytes) -> dict[str, Any]:
    try:
        value = parse(content)
    except ValueError as error:
        raise Refusal(f"the body cannot be read as JSON: {error!s:.200}") from None
    return table(value, "the body")


def _key(headers: Mapping[str, str]) -> str:
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    return bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


def _models(model: str) -> dict[str, Any]:
    """The list of models, or the named model, with the fields of both APIs. The policy answers under every name."""
    shown = {
        "id": model or "policy",
        "object": "model",
        "type": "model",
        "display_name": "policy",
        "owned_by": "rlcore",
        "created": 0,
        "created_at": "1970-01-01T00:00:00Z",
    }
    return shown if model else {"object": "list", "data": [shown], "has_more": False}


def _refusal(error: BaseException) -> Refusal:
    """An error as an answer."""
    match error:
        case Refusal():
            return error
        case EpisodeEnded() if error.stop in ENDS:
            code, message = ENDS[Stop(error.stop)]
            return Refusal(message.format(error), code=code)
        case EpisodeEnded():
            return ended()
        case EngineError():
            return Refusal(f"the engine failed: {error}", status=500, code="engine_error")
        case ValueError():
            return Refusal(str(error))
    log.error("a request to the policy failed", exc_info=error)
    return Refusal("the server failed; its log says why", status=500, code="server_error")


_servers: dict[int, PolicyServer] = {}
_starting = threading.Lock()


def policy_server() -> PolicyServer:
    """The server of this process, which is started at the first call."""
    with _starting:
        process = os.getpid()  # a fork has no thread of its parent
        if process not in _servers:
            _servers[process] = PolicyServer(socket.create_server(("127.0.0.1", 0), backlog=1024))
        return _servers[process]


__all__ = ["PolicyServer", "policy_server"]
