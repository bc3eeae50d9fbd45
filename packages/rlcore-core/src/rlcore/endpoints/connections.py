"""`Connections`: HTTP requests to endpoints, with responses of limited size."""

from __future__ import annotations

import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from rlcore.endpoints.answers import MOST_BYTES, excerpt
from rlcore.endpoints.failures import EndpointFailure
from rlcore.endpoints.options import FROM_ENVIRONMENT, NO_PROXY, EndpointTable, is_local
from rlcore.errors import NotInstalledError
from rlcore.plugins.loading import pip_line

try:
    import httpx2

    from rlcore.endpoints.surplus import one_response
except ImportError:
    raise NotInstalledError("endpoints need httpx2", fix=pip_line(["rlcore-core[endpoints]"])) from None

LONGEST_CONNECT_S = 30.0


class ConnectionLost(Exception):
    """A request without a complete response.

    Args:
        what: what the endpoint did
        error: the exception of httpx2
        unreachable: whether there was no connection to the endpoint
    """

    def __init__(self, what: str, error: Exception, *, unreachable: bool = False) -> None:
        super().__init__(f"the endpoint {what}: {type(error).__name__}: {excerpt(str(error))}")
        self.unreachable = unreachable


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    """The names are independent of case."""
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the request was accepted."""
        return 200 <= self.status < 300


class Connections:
    """Connections to endpoints, in one event loop. Each has one request at a time, and is used again.

    Args:
        config: the endpoints and their proxy
        key: for the header ``Authorization``; None sends none
    """

    def __init__(self, config: EndpointTable, key: str | None) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "rlcore"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        secure = any(url.startswith("https:") for url in config.base_url)
        options: dict[str, Any] = {
            "headers": headers,
            "verify": httpx2.create_ssl_context(verify=secure),  # certificates take time to load
            # A whole request has its own limit.
            "timeout": httpx2.Timeout(None, connect=min(LONGEST_CONNECT_S, config.timeout_s)),
            **_proxy_options(config),
        }
        self._new_client: Callable[[], httpx2.AsyncClient] = lambda: httpx2.AsyncClient(**options)
        self._needs_no_proxy = config.proxy == NO_PROXY or (
            config.proxy == FROM_ENVIRONMENT and not urllib.request.getproxies()
        )
        self._idle: list[httpx2.AsyncClient] = []

    def may_use_proxy(self, url: str) -> bool:
        """Whether a request can go through a proxy; the environment decides for which hosts it does."""
        return not (self._needs_no_proxy or is_local(url))

    async def post(self, url: str, content: bytes) -> Response:
        """Send JSON, and receive the whole response.

        Raises:
            ConnectionLost: there is no complete response.
            EndpointFailure: the response is too long, or damaged.
        """
        async with self._client() as client, client.stream("POST", url, content=content) as found:
            return await _read(found)

    async def get(self, url: str, timeout_s: float) -> Response:
        """Receive a small resource. Raises as `post`, and `TimeoutError` after ``timeout_s``."""
        async with self._client() as client, client.stream("GET", url, timeout=timeout_s) as found:
            return await _read(found)

    async def close(self) -> None:
        """Close all connections."""
        while self._idle:
            await self._idle.pop().aclose()

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Yield a client for one request. A single client would check all its connections for each request."""
        client = self._idle.pop() if self._idle else self._new_client()
        try:
            with _failures(), one_response():
                yield client
        finally:
            self._idle.append(client)


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


def _proxy_options(config: EndpointTable) -> dict[str, Any]:
    """Arguments of the clients. Endpoints on this machine are never reached through a proxy."""
    hosts = {urlsplit(url).hostname or "" for url in config.base_url if is_local(url)}
    direct = [f"all://[{host}]" if ":" in host else f"all://{host}" for host in hosts]
    if config.proxy == NO_PROXY:
        direct += ["all://", "http://", "https://"]
    proxy = None if config.proxy in {FROM_ENVIRONMENT, NO_PROXY} else config.proxy
    return {"proxy": proxy, "mounts": dict.fromkeys(direct)}


async def _read(response: httpx2.Response) -> Response:
    """Read the whole body. Raises `EndpointFailure` if it is too long."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MOST_BYTES:
            raise EndpointFailure(f"the endpoint's answer is longer than {MOST_BYTES // 2**20} MiB")
    return Response(status=response.status_code, headers=response.headers, body=bytes(body))
