"""The default recipes of the plugins for GUI agents learn from the reward alone which colour is where on a screen.

The runs of the proof are kept, see `kept_runs`. ``RLCORE_PROOF_PLUGINS`` selects the plugins, such as ``aitw``.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from kept_runs import FOLDER, SEEDS, kept, rlcore, trained
from PIL import Image
from rlcore.diagnosis.diagnosing import diagnose
from rlcore.types import Task
from rlcore_gui.drawn.dataset import DrawnDataConfig
from rlcore_gui.drawn.screens import COLORS, REWARDED, SHOWN
from rlcore_gui.steps import GuiStep, steps_of
from workspace import ROOT

TABLE = ROOT / "docs" / "results" / "gui.md"
PLUGINS = tuple(os.environ.get("RLCORE_PROOF_PLUGINS", "aitw mind2web").split())
GREEDY, BLANK = "evaluation.temperature=0", "data.blank=true"
CONTROLS = {"shuffled": "algorithm.shuffle_rewards=true", "blank": BLANK}
SHORT = "trainer.steps=100"
"""The length of the control runs."""
BEFORE, AFTER, WITHOUT_ELEMENTS = "before, greedy", "after, greedy", "after, blank pictures"
CLAIMED = 0.5
"""The accuracy that is claimed after reinforcement learning."""
CHANCE = 1 / 4
"""The accuracy of a random place."""
ELEMENTS = (2, 3, 4)
ANY_ELEMENT = sum(1 / count for count in ELEMENTS) / len(ELEMENTS)
"""The accuracy of a random element, for an agent that sees where elements are but not their colours."""
INTRODUCTION = f"""
# GUI agents: the default recipes

Accuracy on 200 held-out drawn screens. Columns with a step have actions that are sampled at temperature 1 after this
number of steps of reinforcement learning; step 0 is after the warm-up. The commands with a seed are complete default
recipes. The others are controls with {SHORT.removeprefix("trainer.steps=")} steps: rewards that are permuted among the
trajectories of a step, and pictures without elements. The last columns evaluate the trained agent on pictures without
elements, and its greedy actions on screens with exactly 2, 3 or 4 elements. A run that is not listed has not been
computed.

- The demonstrations of the warm-up show where {", ".join(SHOWN)} elements are. For tasks about {", ".join(REWARDED)},
  they act on random elements, and no demonstration tells where these colours are. All tasks of reinforcement learning
  and of the evaluation are about these colours, so only the reward can teach them.
- The target of a held-out screen has a colour that its kind of element never has in training: a kind and a colour that
  are new together. So is the text of its task.
- A random cell is right in {CHANCE:.2f} of the tasks, and a random element in {ANY_ELEMENT:.2f} of them: in 0.50, 0.33
  and 0.25 of those with 2, 3 and 4 elements. A higher accuracy needs the colours.
- The place of the nearest training picture, by the sum of squared differences of its pixels, is given for each plugin:
  among all pictures, since none has the same task, and among those whose task has the same colour. These show the
  target, so a comparison of where colours are suffices.

Written by `uv run pytest -m proof tests/end_to_end/test_gui_learns.py`.
"""


def accuracies(run: Path) -> dict[str, float]:
    """The accuracy of actions on held-out screens at each step with an evaluation."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {f"step {line['step']}": line["evaluation/accuracy"] for line in lines if "evaluation/accuracy" in line}


def evaluated(run: Path, *overrides: str) -> float:
    """The accuracy of the last policy of a run on held-out screens."""
    found: float = json.loads(rlcore("eval", str(run / "checkpoints" / "last"), "--json", *overrides))["accuracy"]
    return found


def nearest_neighbours(plugin: str) -> Mapping[str, float]:
    """How often the place of the nearest training picture is right, among all and among those with the same colour.

    The distance of two pictures is the sum of the squared differences of their pixels.
    """
    data = importlib.import_module(f"rl_plugin_{plugin}.dataset").Data(DrawnDataConfig(evaluation=["generated"]))
    train, held_out = ([shown(task) for task in data.tasks(split)] for split in ("train", "evaluation"))
    found = {}
    for name, alike in (("all", lambda one: ""), ("those with the same colour", color_of)):
        right = []
        for picture, step in held_out:
            near = [one for one in train if alike(one[1].task) == alike(step.task)]
            nearest = min(near, key=lambda one: int((np.subtract(one[0], picture, dtype=np.int32) ** 2).sum()))
            right.append(nearest[1].action.position == step.action.position)
        found[name] = sum(right) / len(right)
    return found


def shown(task: Task) -> tuple[npt.NDArray[np.uint8], GuiStep]:
    """The picture of a task, of shape [height, width, 3], and its step."""
    (step,) = steps_of(task)
    return np.asarray(Image.open(io.BytesIO(task.images[0])).convert("RGB")), step


def color_of(text: str) -> str:
    return next(color for color in COLORS if color in text)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_shortened_run_learns_to_tap(tmp_path: Path) -> None:
    """No demonstration tells where the colours of the tasks are, so only reinforcement learning can."""
    short = ("trainer.steps=60", "trainer.schedule=constant", "evaluation.every=60", "checkpoint.every=0")
    run = kept(tmp_path / "run", "-p", "aitw", *short)
    accuracy = accuracies(run)
    assert accuracy["step 0"] < ANY_ELEMENT < ANY_ELEMENT + 0.1 < accuracy["step 60"]
    assert diagnose(run).found == []


@pytest.mark.proof
@pytest.mark.timeout(24 * 3600)
@pytest.mark.parametrize("plugin", PLUGINS)
def test_reward_teaches_to_find_elements_and_controls_do_not(plugin: str) -> None:
    rows: dict[str, Mapping[str, float]] = {}
    neighbours, controls = nearest_neighbours(plugin), FOLDER.parent / "gui"
    for seed in SEEDS:
        words = ["-p", plugin, f"seed={seed}"]
        warmed_up = kept(controls / f"{plugin}-{seed}", *words, GREEDY, "trainer.steps=1")
        run = trained(plugin, seed)
        row = {BEFORE: accuracies(warmed_up)["step 0"], **accuracies(run)}
        row |= {AFTER: evaluated(run, GREEDY), WITHOUT_ELEMENTS: evaluated(run, BLANK)}
        row |= {f"of {count}": evaluated(run, GREEDY, f"data.elements=[{count},{count}]") for count in ELEMENTS}
        rows[" ".join(words)] = row
        write_table(plugin, rows, neighbours)
    for name, control in CONTROLS.items():
        words = ["-p", plugin, control, SHORT]
        rows[" ".join(words)] = accuracies(kept(controls / f"{plugin}-{name}", *words))
        write_table(plugin, rows, neighbours)
    for command, found in rows.items():
        if AFTER in found:
            assert max(found[BEFORE], found["step 0"], found[WITHOUT_ELEMENTS]) < ANY_ELEMENT + 0.1, command
            assert found[AFTER] > CLAIMED, command
        else:
            assert max(found.values()) < ANY_ELEMENT + 0.1, command


def write_table(plugin: str, rows: Mapping[str, Mapping[str, float]], neighbours: Mapping[str, float]) -> None:
    """Write the section of a plugin, and keep that of the other one."""
    heading = "## "
    known = TABLE.read_text(encoding="utf-8").split(heading)[1:] if TABLE.exists() else []
    sections = {section.partition("\n")[0]: section.partition("\n")[2].strip() for section in known}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    nearest = " and ".join(f"{value:.3f} among {name}" for name, value in neighbours.items())
    columns = list(next(iter(rows.values())))
    lines = [
        f"At commit {commit.stdout.strip() or 'unknown'}. The place of the nearest training picture is right in",
        f"{nearest}.",
        "",
        "| `rlcore run` | " + " | ".join(columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for command, row in rows.items():
        cells = " | ".join(f"{row[column]:.3f}" if column in row else "" for column in columns)
        lines.append(f"| `{command}` | {cells} |")
    sections[plugin] = "\n".join(lines)
    parts = [INTRODUCTION.strip(), *(f"{heading}{name}\n\n{text}" for name, text in sorted(sections.items()))]
    TABLE.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
