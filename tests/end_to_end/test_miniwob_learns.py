"""The default recipe of MiniWoB++ learns in a real browser, on more than one seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from preloaded import rlcore_command
from rl_plugin_miniwob.chromium import find_chromium


@pytest.mark.proof
@pytest.mark.timeout(1800)
@pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed")
@pytest.mark.parametrize("seed", [0, 1])
def test_miniwob_learns_which_button_to_click(seed: int, tmp_path: Path) -> None:
    """Of the demonstrations, 0.7 click the right button. A seed takes 7 minutes on two cores."""
    overrides = ("checkpoint.every=0", f"seed={seed}")
    done = rlcore_command(["run", "-p", "miniwob", "name=run", *overrides], tmp_path, timeout_s=1700)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    lines = map(json.loads, (tmp_path / "runs" / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    first, *_, last = [line["evaluation/reward"] for line in lines if "evaluation/reward" in line]
    assert first < 0.65
    assert last > first + 0.1
    assert last > 0.7
