"""A limit on requests per minute."""

from __future__ import annotations

import asyncio


class Pace:
    """Lets callers pass one after the other, evenly spaced, in the order in which they came."""

    def __init__(self, per_minute: float):
        self._interval_s = 60.0 / per_minute
        self._next = 0.0

    async def turn(self, _request: object = None) -> None:
        """Return when it is the caller's turn. The event loop goes on meanwhile."""
        now = asyncio.get_running_loop().time()
        mine = max(self._next, now)
        self._next = mine + self._interval_s
        if mine > now:
            await asyncio.sleep(mine - now)
