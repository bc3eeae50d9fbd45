"""Which of several equal servers gets the next request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rlcore.endpoints.waiting import backoff_s


class Server:
    """One server, and whether it can be asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.running = 0
        """Number of requests that it works on."""
        self.rests_until = 0.0
        """When it can be asked again, on the clock of the event loop."""
        self.losses = 0
        """How often it could not be reached since its last answer."""

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Count a request while it lasts."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def rest(self, seconds: float) -> None:
        """Do not ask it for some time."""
        self.rests_until = max(self.rests_until, asyncio.get_running_loop().time() + seconds)

    def lose(self) -> None:
        """It could not be reached: rest, longer each time."""
        self.rest(backoff_s(self.losses))
        self.losses += 1

    def recover(self) -> None:
        """It has answered."""
        self.losses = 0


class Servers:
    """Equal servers. The requests go to the one that has the least to do."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._servers = [Server(url) for url in dict.fromkeys(urls)]

    @property
    def lost(self) -> bool:
        """Whether none of them could be reached."""
        return all(server.losses for server in self._servers)

    def rest_s(self) -> float:
        """Seconds until one can be asked."""
        return max(0.0, min(server.rests_until for server in self._servers) - asyncio.get_running_loop().time())

    async def free(self) -> Server:
        """A server that can be asked now. Waits while all of them rest, and a little longer to spread the requests."""
        while True:
            now = asyncio.get_running_loop().time()
            ready = [server for server in self._servers if server.rests_until <= now]
            if ready:
                return min(ready, key=lambda server: server.running)
            await asyncio.sleep(self.rest_s() * random.uniform(1.0, 1.1))
