"""Visual search: supervised training on conversations, then reinforcement learning, with the commands of its README."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from documents import blocks
from finished_runs import metrics, succeeded
from workspace import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
README = ROOT / "plugins" / "rl-plugin-visual-search" / "README.md"
USED = "visual-search/tools/used"
"""The metric of the share of episodes with code or a call."""
SHORT = {
    "draw_questions.py": ["--questions=1", "--conversations=256"],
    "name=sft": ["trainer.steps=60", "trainer.held_out=16", "evaluation.every=60", "evaluation.tasks=16"],
    "name=grpo": ["trainer.steps=2", "trainer.tasks_per_step=4", "evaluation.every=0", "checkpoint.every=0"],
}
"""What is added to the commands that contain a word."""


def shortened(command: list[str]) -> list[str]:
    """A command with its program as a path, and less to do."""
    programs = {"python": [sys.executable], "rlcore": [sys.executable, "-m", "rlcore"]}
    extra = [word for key, words in SHORT.items() if any(key in part for part in command) for word in words]
    return [*programs[command[0]], *command[1:], *extra]


def succeeds(command: list[str], folder: Path) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return succeeded(done).stdout


def test_conversations_are_shown_trained_on_and_continued(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (section,) = [block for block in blocks(README) if any("name=sft" in command for command in block.commands)]
    draw, show, train, reinforce = map(shortened, section.commands)
    succeeds(draw, tmp_path)
    shown = succeeds(show, tmp_path)
    assert "    user:" in shown
    assert "image_clue_0.crop((" in shown
    assert "<image_clue_1>" in shown
    assert "\\boxed{" in shown
    assert "448 x 448" in shown
    assert "112 x 112" in shown

    output = succeeds(train, tmp_path)
    assert "240 conversations" in output
    first, *_, last = (line for line in metrics(tmp_path / "runs/sft") if "evaluation/loss" in line)
    assert last["evaluation/loss"] < first["evaluation/loss"] / 4
    assert (first[USED], last[USED]) == (0.0, 1.0)

    succeeds(reinforce, tmp_path)
    steps = [line for line in metrics(tmp_path / "runs/grpo") if "reward/mean" in line]
    assert len(steps) == 2
    assert sum(step["tools/calls"] for step in steps) > 0, "the weights are those of the supervised training"


def test_zoom_tool_is_learned_from_demonstrations(tmp_path: Path) -> None:
    """All demonstrations have the tool, so that few are enough. Greedy answers then call it with a usable region."""
    short = ["data.tools=zoom", "data.descriptions=0", "data.direct=0", "warmup.steps=80"]
    short += ["warmup.demonstrations_per_step=16", "trainer.steps=1", "trainer.tasks_per_step=4", "checkpoint.every=0"]
    short += ["evaluation.every=1", "evaluation.tasks=16", "evaluation.temperature=0", "name=zoom"]
    succeeds([sys.executable, "-m", "rlcore", "run", "--plugin", "visual-search", *short], tmp_path)
    first, *_ = metrics(tmp_path / "runs/zoom")
    assert first[USED] > 0.9
    assert first["visual-search/tools/error_share"] < 0.5
    assert first["visual-search/tools/pictures"] > 0.5
