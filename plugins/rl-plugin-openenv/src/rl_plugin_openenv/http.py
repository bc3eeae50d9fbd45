"""Requests to the HTTP routes of a server, with answers of limited size."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from rlcore.endpoints.answers import excerpt, without_key
from rlcore.endpoints.connections import ConnectionLost, Connections, Response
from rlcore.endpoints.failures import EndpointFailure
from rlcore.endpoints.options import EndpointTable
from rlcore.errors import EnvironmentFailure
from rlcore.json_files import parse_answer

TIMEOUT_S = 30.0


class Requests:
    """Requests of one episode, one at a time. They share cookies, by which a server knows its session.

    Args:
        url: of the server
        key: for the header ``Authorization``; None sends none
    """

    def __init__(self, url: str, key: str | None) -> None:
        self._url, self._key = url, key
        self._connections = Connections(EndpointTable(model="server", base_url=[url]), key)

    async def get(self, path: str) -> Any:
        """The JSON of a resource.

        Raises:
            EnvironmentFailure: there is no valid answer.
        """
        try:
            return self.read(path, await self._connections.get(f"{self._url}{path}", TIMEOUT_S))
        except (ConnectionLost, EndpointFailure, TimeoutError) as error:
            raise self.failure(path, error) from None

    async def post(self, path: str, value: Any) -> Response:
        """The answer to a JSON value, with any status. Raises as `get`."""
        try:
            return await self._connections.post(f"{self._url}{path}", json.dumps(value).encode())
        except (ConnectionLost, EndpointFailure) as error:
            raise self.failure(path, error) from None

    def read(self, path: str, response: Response) -> Any:
        """The JSON of a successful answer. Raises as `get`."""
        if not response.is_success:
            raise self.failure(path, f"status {response.status}: {excerpt(response.body)}")
        try:
            return parse_answer(response.body)
        except ValueError as error:
            raise self.failure(path, f"it is not JSON ({error}): {excerpt(response.body)}") from None

    def failure(self, path: str, reason: Exception | str) -> EnvironmentFailure:
        """An error about a request."""
        text = str(reason) or f"no answer within {TIMEOUT_S:g} s"
        return EnvironmentFailure(without_key(f"{self._url}{path} cannot be used: {text}", self._key))

    async def close(self) -> None:
        """Close the connection."""
        await self._connections.close()


async def get_json(url: str, key: str | None) -> Any:
    """The JSON at ``URL/NAME``. Raises `EnvironmentFailure` if there is none."""
    base, _, name = url.rpartition("/")
    requests = Requests(base, key)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await requests.get(f"/{name}")
    except TimeoutError:
        raise requests.failure(f"/{name}", "") from None
    finally:
        await requests.close()


__all__ = ["Requests", "get_json"]
