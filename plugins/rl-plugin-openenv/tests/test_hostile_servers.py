"""Servers that break the protocol fail their own episode, with a message, in limited time and memory."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from hostile_servers import FAULTS, Fault, served
from rl_plugin_openenv import environment as module
from rl_plugin_openenv.config import DataConfig, EnvironmentConfig
from rl_plugin_openenv.dataset import SeededTasks
from rl_plugin_openenv.environment import OpenEnvChat
from rlcore import event_loop
from rlcore.episodes.calls import CallFailed, call
from rlcore.types import Message

(TASK,) = SeededTasks(DataConfig(train=1)).tasks("train")
SHORT_S, LONG_S = 1.0, 30.0
"""Time limits of a call, for servers that do not answer and for others. A run gives 60 s."""


@pytest.fixture(autouse=True)
def _unknown_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_actions", {})


async def episode(url: str = "demo", *, wait_s: float = LONG_S) -> str:
    """The outcome of two turns."""
    environment = OpenEnvChat(EnvironmentConfig(url=url))
    try:
        await call("reset", environment.reset, TASK, seed=0, timeout_s=wait_s)
        for _ in range(2):
            await call("step", environment.step, Message(role="assistant", content="gray"), timeout_s=wait_s)
        return "ended"
    except CallFailed as failed:
        return str(failed)
    finally:
        await call("close", environment.close, timeout_s=10)


async def beside_others(url: str, wait_s: float) -> list[str]:
    """The outcome of an episode on a server, and those of episodes on the demo at the same time."""
    others = (episode() for _ in range(3))
    return await asyncio.gather(episode(url, wait_s=wait_s), *others)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_faults_of_a_server_fail_its_episode_alone(fault: Fault) -> None:
    with served(fault) as (url, faulty):
        begun = time.monotonic()
        failed, *others = event_loop.run(beside_others(url, SHORT_S if fault.timed_out else LONG_S))
        assert time.monotonic() - begun < 15
        assert others == ["ended"] * 3
        assert failed != "ended"
        assert re.search(fault.reported, failed), failed
        assert fault.timed_out == ("did not answer" in failed)
        assert len(failed) < 1000
        assert failed.isprintable()
        until = time.monotonic() + 5
        while faulty.open and time.monotonic() < until:
            time.sleep(0.01)
        assert not faulty.open
