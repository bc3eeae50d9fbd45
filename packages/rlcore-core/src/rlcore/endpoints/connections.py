"""`Connections`: HTTP requests to endpoints.

A request that surely needs no proxy goes over an `Http1Connection`. The others use the client of httpx2, which reads
the proxies of the environment.
"""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from collections.abc import AsyncIterable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from rlcore.endpoints.answers import excerpt
from rlcore.endpoints.failures import EndpointFailure
from rlcore.endpoints.options import FROM_ENVIRONMENT, NO_PROXY, EndpointTable, is_local
from rlcore.errors import NotInstalledError
from rlcore.plugins.loading import pip_line

try:
    import httpx2

    from rlcore.endpoints.http1 import READ_BYTES, ConnectionLost, Http1Connection, Response, extend
except ImportError:
    raise NotInstalledError("endpoints need httpx2", fix=pip_line(["rlcore-core[endpoints]"])) from None

LONGEST_CONNECT_S = 30.0
KEPT_S = 5.0
"""Seconds after which an idle connection is closed."""


class Connections:
    """Connections to endpoints, in one event loop. Each has one request at a time, and is used again.

    Args:
        config: the endpoints and their proxy
        key: for the header ``Authorization``; None sends none
    """

    def __init__(self, config: EndpointTable, key: str | None) -> None:
        secure = any(url.startswith("https:") for url in config.base_url)
        context = httpx2.create_ssl_context(verify=secure)  # certificates take time to load
        connect_s = min(LONGEST_CONNECT_S, config.timeout_s)  # a whole request has its own limit
        self._headers = {"Accept": "*/*", "Content-Type": "application/json", "User-Agent": "rlcore"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        options = _client_options(config)
        timeout = httpx2.Timeout(None, connect=connect_s)
        self._new_client = lambda: httpx2.AsyncClient(headers=self._headers, verify=context, timeout=timeout, **options)
        self._new_route: Callable[[str], _Route] = lambda url: _Route(url, self._headers, context, connect_s)
        self._needs_no_proxy = config.proxy == NO_PROXY or (
            config.proxy == FROM_ENVIRONMENT and not urllib.request.getproxies()
        )
        self._routes: dict[str, _Route] = {}
        self._clients: list[httpx2.AsyncClient] = []

    def may_use_proxy(self, url: str) -> bool:
        """Whether a request can go through a proxy; the environment decides for which hosts it does."""
        return not (self._needs_no_proxy or is_local(url))

    async def post(self, url: str, content: bytes) -> Response:
        """Send JSON, and receive the whole response.

        Raises:
            ConnectionLost: there is no complete response.
            EndpointFailure: the response is too long, or damaged.
        """
        if not self.may_use_proxy(url):
            if url not in self._routes:
                self._routes[url] = self._new_route(url)
            return await self._routes[url].post(content)
        with _borrowed(self._clients, self._new_client) as client, _failures():
            async with client.stream("POST", url, content=content) as found:
                body = await _bounded(found.aiter_bytes())
        return Response(status=found.status_code, headers=found.headers, body=body)

    async def get(self, url: str, timeout_s: float) -> Response:
        """Receive a small resource. Raises as `post`, and `ConnectionLost` after ``timeout_s``."""
        with _borrowed(self._clients, self._new_client) as client, _failures():
            async with client.stream("GET", url, timeout=timeout_s) as found:
                body = await _bounded(found.aiter_bytes())
        return Response(status=found.status_code, headers=found.headers, body=body)

    async def close(self) -> None:
        """Close all connections."""
        while self._clients:
            await self._clients.pop().aclose()
        for route in self._routes.values():
            route.close()
        await asyncio.sleep(0)  # the event loop closes the sockets


class _Route:
    """The connections to a URL that are not in use, and what all requests to it have in common."""

    def __init__(self, url: str, headers: Mapping[str, str], context: ssl.SSLContext, connect_s: float) -> None:
        parsed = httpx2.URL(url)
        secure = parsed.scheme == "https"
        if secure:
            context.set_alpn_protocols(["http/1.1"])
        self._host, self._port = parsed.raw_host.decode("ascii"), parsed.port or (443 if secure else 80)
        self._context, self._connect_s = context if secure else None, connect_s
        named = {"Host": parsed.netloc.decode("ascii"), "Accept-Encoding": "identity", **headers}
        self._target = parsed.raw_path
        self._headers = [(name.encode("ascii"), value.encode("ascii")) for name, value in named.items()]
        self._idle: list[Http1Connection] = []

    async def post(self, content: bytes) -> Response:
        connection = self._usable()
        if connection is None:
            connection = await Http1Connection.opened(self._host, self._port, self._context, self._connect_s)
        response = await connection.post(self._target, self._headers, content)
        self._idle.append(connection)
        return _decoded(response) if "content-encoding" in response.headers else response

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _usable(self) -> Http1Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable(KEPT_S):
                return connection
            connection.close()
        return None


def _decoded(response: Response) -> Response:
    """A response that is compressed, although this was not asked for."""
    body = response.body
    parts = (body[start : start + READ_BYTES] for start in range(0, len(body), READ_BYTES))
    with _failures():
        found = httpx2.Response(response.status, headers=dict(response.headers), content=parts)
        decoded = bytearray()
        for chunk in found.iter_bytes():
            extend(decoded, chunk)
    return replace(response, body=bytes(decoded))


@contextmanager
def _borrowed(idle: list[httpx2.AsyncClient], make: Callable[[], httpx2.AsyncClient]) -> Iterator[httpx2.AsyncClient]:
    """One that is idle, or a new one, for one request. One for all would look at every connection for each request."""
    found = idle.pop() if idle else make()
    try:
        yield found
    finally:
        idle.append(found)


@contextmanager
def _failures() -> Iterator[None]:
    """Turn the exceptions of httpx2 into those of `Connections`."""
    try:
        yield
    except (httpx2.ConnectTimeout, httpx2.ConnectError) as error:
        raise ConnectionLost("cannot be reached", error, unreachable=True) from None
    except httpx2.TimeoutException:
        raise TimeoutError from None
    except httpx2.TransportError as error:
        raise ConnectionLost("closed the connection", error) from None
    except httpx2.DecodingError as error:
        raise EndpointFailure(f"the endpoint's answer is incomplete: {excerpt(str(error))}") from None


def _client_options(config: EndpointTable) -> dict[str, Any]:
    """Arguments of the clients. Endpoints on this machine are never reached through a proxy."""
    hosts = {urlsplit(url).hostname or "" for url in config.base_url if is_local(url)}
    direct = [f"all://[{host}]" if ":" in host else f"all://{host}" for host in hosts]
    if config.proxy == NO_PROXY:
        direct += ["all://", "http://", "https://"]
    proxy = None if config.proxy in {FROM_ENVIRONMENT, NO_PROXY} else config.proxy
    return {"proxy": proxy, "mounts": dict.fromkeys(direct)}


async def _bounded(chunks: AsyncIterable[bytes]) -> bytes:
    """The whole body. Raises `EndpointFailure` if it is too long."""
    body = bytearray()
    async for chunk in chunks:
        extend(body, chunk)
    return bytes(body)
