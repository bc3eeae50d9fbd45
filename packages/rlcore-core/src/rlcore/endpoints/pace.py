"""A limit on requests per minute."""

from __future__ import annotations

import asyncio


class Pace:
    """Admits callers in order of arrival, at even intervals."""

    def __init__(self, per_minute: float):
        self._interval_s = 60.0 / per_minute
        self._next = 0.0

    async def turn(self) -> None:
        """Wait until it is the caller's turn, without blocking the event loop."""
        now = asyncio.get_running_loop().time()
        mine = max(self._next, now)
        self._next = mine + self._interval_s
        if mine > now:
            await asyncio.sleep(mine - now)
