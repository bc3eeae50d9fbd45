"""The server of ``rlcore view``: it answers a browser that knows the token, and only reads."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hmac
import ipaddress
import json
import logging
import re
import socket
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl

import anyio.to_thread
import uvicorn
from rlcore.console.escaping import printable
from rlcore.errors import DataError, RlcoreError, UserError
from rlcore.plugin_calls import error_text
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from rlcore_view.errors import NotFoundError
from rlcore_view.library import Library
from rlcore_view.routes import answer, media

log = logging.getLogger("rlcore.view")
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
KEPT = "private, max-age=31536000, immutable"
"""For images, whose addresses are hashes of their content."""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>rlcore view</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="view.css">
</head>
<body>
<div id="page"></div>
<noscript>This page needs JavaScript. <code>rlcore data show RUN</code> prints the same in a terminal.</noscript>
<script type="module" src="view.js"></script>
</body>
</html>
"""
STATIC = {"view.js": "text/javascript", "view.css": "text/css"}
WORTH_COMPRESSING = 16_000
"""Bytes of an answer from which compressing it is faster than sending it through a tunnel."""
AT_A_TIME = 8
"""Questions that are answered at a time, which bounds the memory."""
MOST_CONNECTIONS = 64
"""A browser opens 6."""
REQUEST_S = 10.0
"""Seconds in which a request has to arrive, also after another one."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Application:
    """The ASGI application.

    Args:
        library: the runs
        token: what a browser has to know
        host: the address that is listened on
        port: its port
    """

    def __init__(self, library: Library, token: str, host: str, port: int) -> None:
        self._library, self._token, self._port = library, token, port
        self._cookie = f"rlcore-view-{port}"  # cookies of a host are shared by its ports
        self._hosts = {*LOOPBACK, f"[{host}]" if ":" in host else host.lower()}
        self._any_host = host in ("0.0.0.0", "::")
        if self._any_host:
            self._hosts |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        self._limit: anyio.CapacityLimiter | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request in a thread."""
        self._limit = self._limit or anyio.CapacityLimiter(AT_A_TIME)
        response = await anyio.to_thread.run_sync(self._respond, Request(scope), limiter=self._limit)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    def _respond(self, request: Request) -> Response:
        path = _raw_path(request)
        if (refusal := self._refusal(request, path)) is not None:
            return refusal
        try:
            return self._page(path) or self._answer(request, path)
        except (RlcoreError, FileNotFoundError) as error:
            return _problem(error)
        except Exception as error:  # a bug, or data of a kind that nobody thought of: the server goes on
            log.exception("GET %s failed", printable(path[:200]))
            problem = " ".join(error_text(error).split())
            return _json({"problem": problem, "fix": "the terminal shows where it failed"}, 500)

    def _refusal(self, request: Request, path: str) -> Response | None:
        """The answer to a request that is not permitted, or that brings the token."""
        if not self._is_our_host(request.headers.get("host", "")):
            return _text("The address of this page is another one: use the one that rlcore view printed.", 403)
        if request.method not in ("GET", "HEAD"):
            return Response(status_code=405, headers={"Allow": "GET, HEAD"})
        given = request.query_params.get("ticket")
        if path == "" and given is not None and self._is_token(given):
            response = RedirectResponse("/", status_code=303)
            response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            return response
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        known = self._is_token(request.cookies.get(self._cookie, ""))
        if known or (scheme.lower() == "bearer" and self._is_token(bearer.strip())):
            return None
        return _text("Open the address that rlcore view printed once in this browser; then this link works.", 403)

    def _is_our_host(self, value: str) -> bool:
        """Whether a request is for this server. Another name may be a page that directs its name to this machine."""
        name, _, port = value.lower().rpartition(":")
        if self._port == 80 and not name:  # browsers leave the usual port out
            name, port = port, "80"
        if port != str(self._port):
            return False
        return name in self._hosts or (self._any_host and _is_address(name))

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token.encode())

    def _page(self, path: str) -> Response | None:
        if path == "":
            return Response(PAGE, media_type="text/html")
        if path not in STATIC:
            return None
        content = files("rlcore_view").joinpath("bundle", path).read_bytes()
        return Response(content, media_type=STATIC[path], headers={"Cache-Control": "no-cache"})

    def _answer(self, request: Request, path: str) -> Response:
        kind, _, rest = path.partition("/")
        if kind == "api":
            query = dict(parse_qsl(request.url.query, keep_blank_values=True))
            return _json(answer(self._library, rest, query), 200, request.headers.get("accept-encoding", ""))
        if kind == "media":
            content, type = media(self._library, rest)
            if type.startswith("video/"):
                return _film(content, type, request.headers.get("range", ""))
            is_hash = rest.count("/") == 1
            return Response(content, media_type=type, headers={"Cache-Control": KEPT} if is_hash else {})
        raise NotFoundError(f"there is nothing at {path[:80]!r}", fix="open / for the list of runs")


def _raw_path(request: Request) -> str:
    """The path as it was sent, because an escaped slash belongs to a part."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    return raw.partition(b"?")[0].decode("ascii", "replace").removeprefix("/")


def _is_address(name: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(name.strip("[]")))
    return False


def _problem(error: Exception) -> Response:
    if not isinstance(error, UserError):
        return _json({"problem": printable(str(error)), "fix": "it may have been removed: load the page again"}, 404)
    status = 404 if isinstance(error, NotFoundError) else 422 if isinstance(error, DataError) else 400
    return _json({"problem": printable(error.line), "fix": printable(error.fix or "")}, status)


def _json(value: Any, status: int, accepted: str = "") -> Response:
    content = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    headers: Mapping[str, str] = {}
    if len(content) > WORTH_COMPRESSING and "gzip" in accepted:
        content = gzip.compress(content, compresslevel=1)
        headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(content, status_code=status, media_type="application/json", headers=dict(headers))


def _film(content: bytes, type: str, asked: str) -> Response:
    """A film, or the range of it that was asked for: browsers move only in films that have ranges."""
    headers, span = {"Accept-Ranges": "bytes"}, re.fullmatch(r"bytes=([0-9]{1,12})-([0-9]{0,12})", asked)
    if span is None:
        return Response(content, media_type=type, headers=headers)
    start, last = int(span[1]), min(int(span[2] or len(content)), len(content) - 1)
    if start > last:
        return Response(status_code=416, headers={"Content-Range": f"bytes */{len(content)}"})
    headers["Content-Range"] = f"bytes {start}-{last}/{len(content)}"
    return Response(content[start : last + 1], status_code=206, media_type=type, headers=headers)


def _text(text: str, status: int) -> Response:
    return Response(text + "\n", status_code=status, media_type="text/plain")


class Connection(H11Protocol):
    """A connection, which ends unless requests arrive in time. Others use no further descriptors."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait, or end at once if there are too many."""
        super().connection_made(transport)
        self._answered = False
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self.loop.call_later(REQUEST_S, self._check)

    def on_response_complete(self) -> None:
        """Keep the connection for a further request."""
        self._answered = True
        super().on_response_complete()

    def _check(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if not (self._answered or is_answering):
            self.transport.abort()
        elif not self.transport.is_closing():
            self._answered = False
            self.loop.call_later(REQUEST_S, self._check)


class Server(uvicorn.Server):
    """Uvicorn, whose caller handles signals."""

    def __init__(self, application: Application) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the handlers of signals as they are."""
        yield

    def stop(self) -> None:
        """End the server; also from a handler of a signal."""
        self.should_exit = True


__all__ = ["Application", "Server"]
