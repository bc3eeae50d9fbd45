"""The default recipe of visual search learns to look closer, and answers no better than chance without its tool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from rlcore.diagnosis.diagnosing import diagnose
from workspace import ROOT

TABLE = ROOT / "docs" / "results" / "visual-search.md"
CHANCE = 1 / 4
"""The best accuracy without the tool: all marks are equal in a reduced picture."""
MINUTES_CLAIMED = 15
WITHOUT_TOOL = "data.tools=none"


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A finished run."""

    command: str
    accuracy: Mapping[int, float]
    """Accuracy of sampled answers to held-out questions by step."""
    without_tool: float
    """That of the trained model if the tool is taken away."""
    seconds: float
    """Of processor time, which other processes on the machine do not change much. The run has one thread."""

    @property
    def first(self) -> float:
        return self.accuracy[0]

    @property
    def last(self) -> float:
        return self.accuracy[max(self.accuracy)]


def rlcore(*arguments: str) -> tuple[str, float]:
    """The output of a command, and the processor time of it and of the processes that it started, in seconds."""
    command = [sys.executable, "-m", "rlcore", *arguments]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as output,
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
    ):
        process = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        text, problems = output.read(), errors.read()
    assert process.returncode == 0, text[-2000:] + problems[-4000:]
    return text, usage.ru_utime + usage.ru_stime


def run(folder: Path, *overrides: str) -> Learned:
    arguments = ("run", "--plugin", "visual-search", *overrides)
    _, seconds = rlcore(*arguments, f"runs={folder}", "name=run")
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    accuracy = {line["step"]: line["evaluation/accuracy"] for line in lines if "evaluation/accuracy" in line}
    without = json.loads(rlcore("eval", str(folder / "run"), "--json", WITHOUT_TOOL)[0])
    return Learned(
        command=" ".join(("rlcore", *arguments)), accuracy=accuracy, without_tool=without["accuracy"], seconds=seconds
    )


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


def write_table(runs: Mapping[str, Learned]) -> None:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    steps = sorted(runs["seed 0"].accuracy)
    lines = [
        "# visual-search: the default recipe",
        "",
        "Accuracy of sampled answers to 200 held-out questions about drawn pictures, by training step. Step 0 is after",
        f"the warm-up. The last column is the accuracy of the trained model with `{WITHOUT_TOOL}`. Chance is",
        f"{CHANCE:.2f}: all signs look equal at the size at which the model sees a picture. Written by",
        "`uv run pytest -m proof tests/end_to_end/test_visual_search_learns.py`",
        f"at commit {commit.stdout.strip() or 'unknown'}, two runs at a time on {os.cpu_count()} cores.",
        "",
        "| run | command | "
        + " | ".join(f"step {step}" for step in steps)
        + " | processor seconds | without the tool |",
        "|---|---|" + "---|" * (len(steps) + 2),
    ]
    for name, learned in runs.items():
        accuracies = " | ".join(f"{learned.accuracy[step]:.3f}" for step in steps)
        without = f"{learned.without_tool:.3f}"
        lines.append(f"| {name} | `{learned.command}` | {accuracies} | {learned.seconds:.0f} | {without} |")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
