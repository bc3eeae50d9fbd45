"""Remember verdicts, and ask concurrent equal questions once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Pending:
    task: asyncio.Task[float]
    waiting: int = 0


class VerdictCache:
    """Verdicts by question. The one that was used longest ago is forgotten first. Failures are not remembered.

    Args:
        size: the number of verdicts to remember
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: OrderedDict[bytes, float] = OrderedDict()
        self._pending: dict[tuple[asyncio.AbstractEventLoop, bytes], _Pending] = {}

    def __len__(self) -> int:
        return len(self._known)

    async def get(self, key: bytes, ask: Callable[[], Awaitable[float]]) -> tuple[float, bool]:
        """The verdict, and whether it was known or is that of a concurrent equal question.

        A cancelled caller does not affect the others. The question is cancelled with its last caller.
        """
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key], True
        loop = asyncio.get_running_loop()
        pending = self._pending.get((loop, key))
        first = pending is None
        if pending is None:
            pending = self._pending[loop, key] = _Pending(loop.create_task(self._asked(key, ask)))
        pending.waiting += 1
        try:
            return await asyncio.shield(pending.task), not first
        finally:
            pending.waiting -= 1
            if not pending.waiting:
                pending.task.cancel()
                self._pending.pop((loop, key), None)

    async def _asked(self, key: bytes, ask: Callable[[], Awaitable[float]]) -> float:
        verdict = await ask()
        if self._size:
            self._known[key] = verdict
            while len(self._known) > self._size:
                self._known.popitem(last=False)
        return verdict
