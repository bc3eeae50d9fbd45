"""The default recipe of visual search learns to look closer, and answers no better than chance without its tool."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from finished_runs import Learned, commit, evaluations, measured, rlcore, write_page
from rlcore.diagnosis.diagnosing import diagnose

CHANCE = 1 / 4
"""The best accuracy without the tool: all marks are equal in a reduced picture."""
MINUTES_CLAIMED = 15
WITHOUT_TOOL = "data.tools=none"


@dataclass(frozen=True, kw_only=True)
class LookedCloser(Learned):
    """A finished run. Its seconds are of processor time, which other processes on the machine do not change much."""

    without_tool: float
    """The accuracy of the trained model if the tool is taken away."""


def run(folder: Path, *overrides: str) -> LookedCloser:
    arguments, made = ("run", "--plugin", "visual-search", *overrides), folder / "run"
    folder.mkdir(parents=True, exist_ok=True)
    usage = measured(*arguments, f"runs={folder}", "name=run", out=folder / "output")
    without = json.loads(rlcore("eval", str(made), "--json", WITHOUT_TOOL))["accuracy"]
    command, seconds = " ".join(("rlcore", *arguments)), usage.ru_utime + usage.ru_stime
    return LookedCloser(run=made, command=command, accuracy=evaluations(made), without_tool=without, seconds=seconds)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_shortened_run_learns_to_look_closer(tmp_path: Path) -> None:
    """Two demonstrations of five guess, so only reinforcement learning can raise the accuracy."""
    learned = run(tmp_path, "warmup.steps=300", "trainer.steps=20", "evaluation.every=20", "checkpoint.every=20")
    assert learned.last > learned.first + 0.05
    assert learned.last > learned.without_tool + 0.2
    assert learned.without_tool < CHANCE + 0.1
    assert diagnose(tmp_path / "run").found == []


@pytest.mark.proof
@pytest.mark.timeout(14400)
def test_three_seeds_learn_and_controls_do_not(tmp_path: Path) -> None:
    overrides = {f"seed {seed}": f"seed={seed}" for seed in (0, 1, 2)}
    overrides |= {"no tool in training": WITHOUT_TOOL, "empty pictures": "data.blank=true"}
    with ThreadPoolExecutor(max_workers=2) as pool:  # each run has one thread
        started = {name: pool.submit(run, tmp_path / name, override) for name, override in overrides.items()}
        runs = {name: future.result() for name, future in started.items()}
    write_table(runs)
    for seed in ("seed 0", "seed 1", "seed 2"):
        assert runs[seed].last >= runs[seed].without_tool + 0.3, seed
        assert runs[seed].last >= runs[seed].first + 0.1, seed
        assert runs[seed].seconds < MINUTES_CLAIMED * 60, seed
    for control in ("no tool in training", "empty pictures"):
        assert max(runs[control].accuracy.values()) < CHANCE + 0.1, control


def write_table(runs: Mapping[str, LookedCloser]) -> None:
    introduction = (
        "# visual-search: the default recipe",
        "",
        "Accuracy of sampled answers to 200 held-out questions about drawn pictures, by training step. Step 0 is after",
        f"the warm-up. The last column is the accuracy of the trained model with `{WITHOUT_TOOL}`. Chance is",
        f"{CHANCE:.2f}: all signs look equal at the size at which the model sees a picture. Written by",
        "`uv run pytest -m proof tests/end_to_end/test_visual_search_learns.py`",
        f"at commit {commit()}, two runs at a time on {os.cpu_count()} cores.",
    )
    columns = ("run", "command", *sorted(runs["seed 0"].accuracy), "processor seconds", "without the tool")
    rows = (
        [name, f"`{one.command}`", *one.cells(), f"{one.seconds:.0f}", f"{one.without_tool:.3f}"]
        for name, one in runs.items()
    )
    write_page("visual-search", introduction, columns, rows)
