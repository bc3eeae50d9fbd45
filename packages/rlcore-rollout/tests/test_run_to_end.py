from __future__ import annotations

import asyncio
import time

import pytest
from rlcore_rollout.threads import run_to_end


def test_cancellation_waits_for_the_end_of_a_call_in_a_thread() -> None:
    ended = list[bool]()

    def call() -> None:
        time.sleep(0.1)
        ended.append(True)

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await run_to_end(call)
        assert ended

    asyncio.run(cancelled())
