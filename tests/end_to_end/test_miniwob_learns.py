"""The default recipe of MiniWoB++ learns in a real browser, on more than one seed; with screenshots, it trains.

A policy of screenshots is evaluated on the other environments with screenshots.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from finished_runs import evaluations, numbers, succeeded
from preloaded import rlcore_command
from rl_plugin_miniwob.chromium import find_chromium

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_vision_model_trains_on_screenshots(tmp_path: Path) -> None:
    screens = ("environment.id=miniwob-screens", "data.id=miniwob-screens", "model.path=builtin:tiny-qwen2.5-vl")
    short = ("warmup.steps=2", "warmup.demonstrations_per_step=4", "trainer.steps=2", "trainer.tasks_per_step=2")
    few = ("evaluation.tasks=2", "rollout.group_size=2", "checkpoint.every=0", "name=run")
    succeeded(rlcore_command(["run", "-p", "miniwob", *screens, *short, *few], tmp_path, timeout_s=400))
    rows = numbers(tmp_path / "runs" / "run").values()
    assert [row["not_scored"] for row in rows if "not_scored" in row] == [0.0, 0.0]
    for there in (["-p", "miniwob", *screens[:2]], ["-p", "mind2web"], ["-p", "aitw"]):
        words = ["eval", *there, "model.path=runs/run", "evaluation.tasks=2", "--json"]
        found = json.loads(succeeded(rlcore_command(words, tmp_path, timeout_s=200)).stdout)
        assert (found["scored"], found["not_scored"]) == (2, 0), found


@pytest.mark.proof
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [0, 1])
def test_miniwob_learns_which_button_to_click(seed: int, tmp_path: Path) -> None:
    """Of the demonstrations, 0.7 click the right button. A seed takes 7 minutes on two cores."""
    words = ["run", "-p", "miniwob", "name=run", "checkpoint.every=0", f"seed={seed}"]
    succeeded(rlcore_command(words, tmp_path, timeout_s=1700))
    first, *_, last = evaluations(tmp_path / "runs" / "run", "reward").values()
    assert first < 0.65
    assert last > first + 0.1
    assert last > 0.7
