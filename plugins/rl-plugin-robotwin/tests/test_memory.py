"""Memory does not grow with the number of episodes."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest
from finished_runs import commit

pytest.importorskip("sapien", reason="needs rl-plugin-robotwin[sapien]")

from rl_plugin_robotwin.environment import BimanualEnvironment
from rl_plugin_robotwin.simulation.cameras import NAMES, CameraConfig
from rl_plugin_robotwin.simulation.rendering import device_of, probe

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "docs" / "results" / "robot-memory.md"
PICTURES = dict.fromkeys(NAMES, CameraConfig(width=32, height=32))


def memory_mb() -> float:
    """Anonymous memory of this process."""
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def growth_mb(environment: BimanualEnvironment, warm_up: int, episodes: int) -> float:
    """How much memory grows over the episodes after the warm-up."""
    before = 0.0
    for episode in range(warm_up + episodes):
        if episode == warm_up:
            before = memory_mb()
        environment.reset(seed=episode)
        for _ in range(2):
            environment.step(np.zeros(14))
    return memory_mb() - before


@pytest.mark.long
def test_episodes_leave_no_memory_behind() -> None:
    assert growth_mb(BimanualEnvironment(task="stack_two"), 30, 60) < 3


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_a_thousand_episodes_leave_no_memory_behind() -> None:
    found = probe("trivial", device_of())
    if not found.works:
        pytest.skip(f"no pictures can be drawn here: {found.text}")
    grown = {
        "state": growth_mb(BimanualEnvironment(task="stack_two"), 100, 1000),
        "three cameras": growth_mb(BimanualEnvironment(task="stack_two", cameras=PICTURES), 100, 1000),
    }
    lines = [
        "# Memory of the robots over 1,000 episodes",
        "",
        "Growth of anonymous memory over 1,000 episodes of `stack_two` after 100 others. Each has a new scene.",
        "Written by",
        "`uv run pytest -m proof plugins/rl-plugin-robotwin/tests/test_memory.py`",
        f"at commit {commit()}, on {os.cpu_count()} cores.",
        "",
        "| observations | growth |",
        "|---|---|",
        *(f"| {name} | {value:.1f} MB |" for name, value in grown.items()),
    ]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert max(grown.values()) < 20
