"""The adapters to other collections of environments learn on a small one of theirs, on more than one seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from preloaded import rlcore_command

SMALL_LAKE = (
    'data.arguments={is_slippery=false, desc=["SFF","FHF","FFG"]}',
    *("environment.max_turns=8", "warmup.steps=40", "trainer.steps=16", "evaluation.every=16", "checkpoint.every=0"),
)
"""Nine fields with a hole in the middle: without looking at the field, at most every second episode succeeds."""


def accuracies(plugin: str, folder: Path, *overrides: str) -> list[float]:
    done = rlcore_command(["run", "-p", plugin, "name=run", *overrides], folder, timeout_s=500)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    lines = map(json.loads, (folder / "runs" / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["evaluation/accuracy"] for line in lines if "evaluation/accuracy" in line]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [0, 1])
def test_gymnasium_learns_to_look_at_the_observation(seed: int, tmp_path: Path) -> None:
    first, *_, last = accuracies("gymnasium", tmp_path, *SMALL_LAKE, f"seed={seed}")
    assert first < 0.4
    assert last > 0.65
