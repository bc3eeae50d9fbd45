"""Small cells in warm sandbox sessions, beside budgets, a fresh interpreter for each cell, and a Jupyter kernel.

The budgets: 500 cells a second and core, counting the CPU time of all processes; a median of 3 ms for a cell; 15 ms to
start a session; 40 MB of an idle session. Each backend that this machine has is measured, under its name.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from _sandbox_processes import cpu_of_all, descendants, proportional_mb, usable
from comparison import Absent, Comparison
from jupyter_client.manager import AsyncKernelManager, start_new_async_kernel
from rlcore.types import SandboxLimits
from rlcore_sandbox.local import LocalSandbox

VERSIONS = ("rlcore-rollout", "numpy", "pillow", "matplotlib", "ipykernel", "jupyter-client")

SESSIONS, CELLS, STARTS, FRESH, IDLE = 8, 100, 20, 5, 16
LIMITS = SandboxLimits()
IMPORTS = "import io, base64, math\nimport numpy as np\nfrom PIL import Image\nimport matplotlib.pyplot as plt\n"
CELL = "n = {}\nprint(n + 1)\nmath.sqrt(n * n)"


def expected(number: int) -> tuple[str, str]:
    """What a cell prints, and its value."""
    return f"{number + 1}\n", f"{float(number)}"


def in_sandbox(backend: str, work: Callable[[LocalSandbox], Coroutine[Any, Any, float]]) -> Callable[[], float]:
    """A side that measures in a sandbox whose zygote runs."""

    async def whole() -> float:
        sandbox = LocalSandbox(backend, LIMITS)
        try:
            await (await sandbox.open()).close()
            return await work(sandbox)
        finally:
            await sandbox.close()

    return lambda: asyncio.run(whole())


async def cell_cpu_ms(sandbox: LocalSandbox, sessions: int, cells: int) -> float:
    """CPU time of a cell in all processes, with several sessions at a time."""
    opened = [await sandbox.open() for _ in range(sessions)]

    async def work(count: int) -> None:
        for session in opened:
            for number in range(count):
                result = await session.run(CELL.format(number))
                assert (result.stdout, result.value) == expected(number), result

    await work(5)
    start = cpu_of_all()
    await work(cells)
    return (cpu_of_all() - start) / (sessions * cells) * 1000


async def cell_median_ms(sandbox: LocalSandbox, cells: int) -> float:
    """Median wall time of a cell."""
    session = await sandbox.open()
    found = []
    for number in range(cells):
        start = time.perf_counter()
        result = await session.run(CELL.format(number))
        found.append(time.perf_counter() - start)
        assert (result.stdout, result.value) == expected(number), result
    return statistics.median(found) * 1000


async def start_median_ms(sandbox: LocalSandbox, starts: int) -> float:
    """Median wall time from the request for a session to its first possible cell."""
    found = []
    for _ in range(starts):
        start = time.perf_counter()
        session = await sandbox.open()
        found.append(time.perf_counter() - start)
        assert (await session.run("6 * 7")).value == "42"
        await session.close()
    return statistics.median(found) * 1000


async def idle_mb(sandbox: LocalSandbox, sessions: int) -> float:
    """Memory of an idle session that has run a cell. Libraries that it shares with others are divided between them."""
    before = descendants(os.getpid())
    for session in [await sandbox.open() for _ in range(sessions)]:
        assert (await session.run(CELL.format(1))).ok
    started = descendants(os.getpid()) - before
    assert len(started) == sessions, started  # bubblewrap and the zygote run already
    return sum(map(proportional_mb, started)) / sessions


def fresh_interpreters(cells: int) -> float:
    """Milliseconds of a cell with an interpreter of its own."""
    start = time.perf_counter()
    for number in range(cells):
        code = IMPORTS + CELL.format(number)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == expected(number)[0]
    return (time.perf_counter() - start) / cells * 1000


def kernel_cell_ms(cells: int) -> float:
    """Median milliseconds of a cell in a warm Jupyter kernel."""
    return asyncio.run(_in_kernel(cells))[1]


def kernel_start_ms() -> float:
    """Milliseconds until a Jupyter kernel can run its first cell, with the libraries imported."""
    return asyncio.run(_in_kernel(1))[0]


async def _in_kernel(cells: int) -> tuple[float, float]:
    begin = time.perf_counter()
    manager: AsyncKernelManager
    manager, client = await start_new_async_kernel(kernel_name="python3")
    try:
        await client.execute_interactive(IMPORTS, store_history=False)
        started = time.perf_counter() - begin
        found = []
        for number in range(cells):
            shown: list[dict[str, Any]] = []
            start = time.perf_counter()
            await client.execute_interactive(CELL.format(number), store_history=False, output_hook=shown.append)
            found.append(time.perf_counter() - start)
            texts = [each["content"]["text"] for each in shown if each["msg_type"] == "stream"]
            assert "".join(texts) == expected(number)[0]
        return started * 1000, statistics.median(found) * 1000
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """Budgets and peers, for each backend."""
    return [comparison for backend in usable() for comparison in compared(backend, smoke)]


def compared(backend: str, smoke: bool) -> list[Comparison]:
    """Budgets and peers of one backend."""
    sessions, cells, starts, fresh = (1, 2, 1, 1) if smoke else (SESSIONS, CELLS, STARTS, FRESH)
    median = in_sandbox(backend, lambda sandbox: cell_median_ms(sandbox, sessions * cells))
    start = in_sandbox(backend, lambda sandbox: start_median_ms(sandbox, starts))
    absent = Absent("a smoke run starts no kernel")
    kernel_cell = absent if smoke else lambda: kernel_cell_ms(cells)
    return [
        Comparison(
            name=f"{backend}-cells-per-core",
            ours=in_sandbox(backend, lambda sandbox: cell_cpu_ms(sandbox, sessions, cells)),
            peer=2.0,
            floor=1,
            unit="ms",
        ),
        Comparison(name=f"{backend}-cell-median", ours=median, peer=3.0, floor=1, unit="ms"),
        Comparison(name=f"{backend}-start", ours=start, peer=15.0, floor=1, unit="ms"),
        Comparison(
            name=f"{backend}-idle-memory",
            ours=in_sandbox(backend, lambda sandbox: idle_mb(sandbox, 1 if smoke else IDLE)),
            peer=40.0,
            floor=1,
            unit="MB",
        ),
        Comparison(
            name=f"{backend}-fresh-python", ours=median, peer=lambda: fresh_interpreters(fresh), floor=300, unit="ms"
        ),
        Comparison(name=f"{backend}-jupyter-cell", ours=median, peer=kernel_cell, floor=3, unit="ms"),
        Comparison(
            name=f"{backend}-jupyter-start",
            ours=start,
            peer=absent if smoke else kernel_start_ms,
            floor=50,
            unit="ms",
        ),
    ]
