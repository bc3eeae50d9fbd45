"""``schedule.ahead=1`` with the torch engine: the default recipe learns, in the same way each time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from preloaded import rlcore_command

RUN = ("run", "-p", "gsm8k-tools", "schedule.ahead=1")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-p", "robotwin"], "a policy without tokens is sampled itself"),
        (["-p", "gsm8k-tools", "strategy.id=ddp", "strategy.processes=2"], "each process samples with its own torch"),
        (["-p", "gsm8k-tools", "-r", "smollm2-135m-sft"], "a trainer on stored examples has no groups"),
    ],
)
def test_what_cannot_be_sampled_ahead_is_refused(words: list[str], reason: str, tmp_path: Path) -> None:
    done = rlcore_command(["run", *words, "schedule.ahead=1", "--dry-run"], tmp_path)
    assert done.returncode == 2
    assert "bad value    schedule.ahead = 1" in done.stderr
    assert reason in done.stderr


def metrics(run: Path) -> list[dict[str, float]]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{name: value for name, value in json.loads(line).items() if "time" not in name} for line in lines]


@pytest.mark.slow
def test_two_runs_are_equal(tmp_path: Path) -> None:
    small = ("trainer.tasks_per_step=4", "trainer.steps=3", "warmup.steps=10", "evaluation.every=0")
    for name in ("one", "other"):
        done = rlcore_command([*RUN, *small, f"name={name}"], tmp_path)
        assert done.returncode == 0, done.stderr
    one, other = (metrics(tmp_path / "runs" / name) for name in ("one", "other"))
    assert one == other
    assert "off-policy by one step" in done.stdout


@pytest.mark.long
def test_default_recipe_learns(tmp_path: Path) -> None:
    done = rlcore_command([*RUN, "trainer.steps=20", "evaluation.every=20", "name=ahead"], tmp_path)
    assert done.returncode == 0, done.stderr
    rows = metrics(tmp_path / "runs/ahead")
    assert rows[-1]["evaluation/accuracy"] > 0.5 > rows[0]["evaluation/accuracy"]
