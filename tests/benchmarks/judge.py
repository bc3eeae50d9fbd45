"""1,000 judgements, 64 at a time, by a server that answers in 50 ms, against the time of its answers alone."""

from __future__ import annotations

import asyncio
import atexit
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from comparison import Comparison
from rl_plugin_llm_judge.config import JudgeConfig
from rl_plugin_llm_judge.judge import Judge
from rlcore.testing import make_trajectory
from rlcore.types import Message, Task

VERSIONS = ("rlcore-core", "rl-plugin-llm-judge", "httpx2")

JUDGEMENTS, CONCURRENCY, ANSWER_S = 1000, 64, 0.05


def started_server() -> str:
    """The URL of a server in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("_judge_server.py")), str(ANSWER_S)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    atexit.register(server.kill)
    assert server.stdout is not None
    return f"http://127.0.0.1:{int(server.stdout.readline())}/v1"


def measured(url: str, count: int) -> Callable[[], float]:
    """One call judges different answers to different questions, and closes the connections."""
    tasks = [
        Task(id=str(n), messages=(Message(role="user", content=f"What is {n} + {n}?"),), fields={"answer": str(2 * n)})
        for n in range(count)
    ]
    trajectories = [make_trajectory(*task.messages, f"It is {task.fields['answer']}.") for task in tasks]

    async def judge_all() -> float:
        judge = Judge(JudgeConfig(base_url=[url], concurrency=CONCURRENCY))
        try:
            start = time.perf_counter()
            found = await asyncio.gather(*map(judge, trajectories, tasks))
            elapsed = time.perf_counter() - start
        finally:
            await judge.close()
        assert all(result.value == 1.0 and result.components["judged"] for result in found)
        return elapsed

    return lambda: asyncio.run(judge_all())


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """The judgements against the ideal time."""
    count = CONCURRENCY if smoke else JUDGEMENTS
    ideal = math.ceil(count / CONCURRENCY) * ANSWER_S
    return [Comparison(name="judgements", ours=measured(started_server(), count), peer=ideal, floor=0.6)]
