"""64 trajectories with time limits in a tenth of the cells: at most 1.2 times the time without them plus one limit.

A trajectory is a sandbox session with five cells of some milliseconds and short pauses, as for sampling. Half of the
cells that run into the limit sleep and ignore signals, and half compute for ever. Both sides start their sessions. Each
backend that this machine has is measured, under its name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from _sandbox_processes import usable
from comparison import Comparison
from rlcore.types import SandboxLimits
from rlcore_sandbox.local import LocalSandbox

VERSIONS = ("rlcore-rollout", "numpy", "pillow")

TRAJECTORIES, CELLS, EVERY, PAUSE_S, LIMIT_S = 64, 5, 10, 0.05, 2.0
CELL = "picture = Image.new('L', (400, 300), {0}).resize((1600, 1200))\nprint(picture.getpixel((5, 5)))\n{0}"
STRAGGLERS = (
    "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(1)",
    "while True:\n    try:\n        sum(range(10**9))\n    except BaseException: pass",
)


async def trajectory(sandbox: LocalSandbox, number: int, every: int | None) -> int:
    """Run the cells of one trajectory, and return how many were stopped. Every n-th cell of all runs into the limit."""
    session = await sandbox.open()
    stopped = 0
    try:
        for turn in range(CELLS):
            await asyncio.sleep(PAUSE_S)
            place = number * CELLS + turn
            if every is not None and place % every == 0:
                result = await session.run(STRAGGLERS[place // every % len(STRAGGLERS)])
                assert (result.status, result.reset) == ("timeout", True), result
                stopped += 1
            else:
                result = await session.run(CELL.format(turn))
                assert (result.status, result.stdout, result.value) == ("ok", f"{turn}\n", str(turn)), result
    finally:
        await session.close()
    return stopped


def measured(backend: str, trajectories: int, every: int | None, limit_s: float) -> Callable[[], float]:
    """All trajectories at a time, without the start of the zygote."""

    async def whole() -> float:
        sandbox = LocalSandbox(backend, SandboxLimits(cell_s=limit_s))
        try:
            await (await sandbox.open()).close()
            start = time.perf_counter()
            stopped = await asyncio.gather(*(trajectory(sandbox, number, every) for number in range(trajectories)))
            elapsed = time.perf_counter() - start
            cells = trajectories * CELLS
            assert sum(stopped) == (0 if every is None else -(-cells // every))
            return elapsed
        finally:
            await sandbox.close()

    return lambda: asyncio.run(whole())


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """With stragglers, against the allowed time."""
    trajectories = 2 if smoke else TRAJECTORIES
    limit_s = 4.0 if smoke else LIMIT_S  # the other cells must not run into it on a busy machine
    return [
        Comparison(
            name=f"{backend}-time-limits",
            ours=measured(backend, trajectories, EVERY, limit_s),
            peer=allowed(backend, trajectories, limit_s),
            floor=1,
        )
        for backend in usable()
    ]


def allowed(backend: str, trajectories: int, limit_s: float) -> Callable[[], float]:
    """The time without stragglers and what is added to it."""
    without = measured(backend, trajectories, None, limit_s)
    return lambda: 1.2 * without() + limit_s
