"""The default recipes of the plugins for GUI agents learn from the reward alone which colour is where on a screen.

The runs of the proof are kept, see `kept_runs`. Each writes its row of the page; ``-k aitw-0`` selects one.
"""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from finished_runs import evaluations, rlcore
from kept_runs import FOLDER, SEEDS, commit_of, kept, trained, with_row
from PIL import Image
from rlcore.diagnosis.diagnosing import diagnose
from rlcore.types import Task
from rlcore_gui.drawn.dataset import DrawnDataConfig
from rlcore_gui.drawn.screens import COLORS, REWARDED, SHOWN
from rlcore_gui.steps import GuiStep, steps_of
from workspace import ROOT

TABLE = ROOT / "docs" / "results" / "gui.md"
PLUGINS = ("aitw", "mind2web")
GREEDY, BLANK = "evaluation.temperature=0", "data.blank=true"
CONTROLS = {"shuffled": "algorithm.shuffle_rewards=true", "blank": BLANK}
SHORT = "trainer.steps=100"
"""The length of the control runs."""
BEFORE, AFTER, WITHOUT_ELEMENTS = "before, greedy", "after, greedy", "after, blank pictures"
CHANCE = 1 / 4
"""The accuracy of a random place."""
ELEMENTS = (2, 3, 4)
ANY_ELEMENT = sum(1 / count for count in ELEMENTS) / len(ELEMENTS)
"""The accuracy of a random element, for an agent that sees where elements are but not their colours."""
OF_SET = (1 / 2 + 1 / 3 + 1 / 3) / 3
"""The accuracy of a random element of a colour of `REWARDED`, for an agent that tells these colours from the others."""
CLAIMED = OF_SET + 0.1
"""The accuracy that is claimed after reinforcement learning."""
STEPS = tuple(f"step {step}" for step in (0, 50, 100, 150))
COLUMNS = (BEFORE, *STEPS, AFTER, WITHOUT_ELEMENTS, *(f"of {count}" for count in ELEMENTS))
STARTS = ("| `-p ", "| aitw: ", "| mind2web: ")
"""How rows of the page begin."""
INTRODUCTION = f"""
# GUI agents: the default recipes

Accuracy on 200 held-out drawn screens. Columns with a step have actions that are sampled at temperature 1 after this
number of steps of reinforcement learning; step 0 is after the warm-up. Greedy actions before and after them show what
the warm-up has taught. The commands with a seed are complete default recipes. The others are controls with
{SHORT.removeprefix("trainer.steps=")} steps: rewards that are permuted among the trajectories of a step, with which
`mind2web` loses the format of its actions, and pictures without elements. The last columns evaluate the trained agent
on pictures without elements, and its greedy actions on screens with exactly 2, 3 or 4 elements. A run that is
not listed has not been computed.

- The demonstrations of the warm-up show where {", ".join(SHOWN)} elements are. For tasks about {", ".join(REWARDED)},
  they act on random elements, and no demonstration tells where these colours are. All tasks of reinforcement learning
  and of the evaluation are about these colours, so only the reward can teach them.
- The target of a held-out screen has a colour that targets of its kind never have in training, such as a yellow app. So
  the text of its task is new. Other elements have this colour on screens of training: among two colours only, the
  policy found targets by elimination, and `mind2web` with seed 1 reached 0.61 in training, but 0.29 on held-out
  screens.
- A random cell is right in {CHANCE:.2f} of the tasks, a random element in {ANY_ELEMENT:.2f}, and a random element of
  these three colours in {OF_SET:.2f}: in 0.50, 0.33 and 0.33 of the tasks with 2, 3 and 4 elements. A higher accuracy
  needs to tell the three colours apart.
- The nearest training picture is the one with the smallest sum of squared differences of its pixels, among all
  pictures, since none has the same task, or among those whose task has the same colour. These show the target, so a
  comparison of where colours are suffices.
- The tasks of a plugin have the same number of tokens. When those of `mind2web` had not, the policy learned the colours
  at each distance between task and picture alone: with seed 0, the accuracy rose to 0.75 in training, and only to
  0.29 on held-out screens.

![Accuracy on held-out screens during training](../images/gui.svg)

Written by `uv run pytest -m proof tests/end_to_end/test_gui_learns.py`.
"""


def accuracies(run: Path) -> dict[str, float]:
    """The accuracy of actions on held-out screens at each step with an evaluation."""
    return {f"step {step}": value for step, value in evaluations(run).items()}


def evaluated(*words: str) -> float:
    """The accuracy that ``rlcore eval`` prints."""
    found: float = json.loads(rlcore("eval", *words, "--json"))["accuracy"]
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
    short = ("trainer.steps=90", "trainer.schedule=constant", "evaluation.every=90", "checkpoint.every=0")
    run = kept(tmp_path / "run", "-p", "aitw", *short)
    accuracy = accuracies(run)
    assert accuracy["step 0"] < CLAIMED < accuracy["step 90"]
    assert accuracy["step 90"] > accuracy["step 0"] + 0.2, "four standard errors of the difference"
    assert diagnose(run).found == []


@pytest.mark.proof
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("plugin", PLUGINS)
def test_reward_teaches_to_find_elements(plugin: str, seed: int) -> None:
    run = trained(plugin, seed)
    before = f"model.path={run / 'checkpoints' / 'reference'}"
    found = {BEFORE: evaluated("-p", plugin, before, GREEDY), **accuracies(run)}
    last = str(run / "checkpoints" / "last")
    found |= {AFTER: evaluated(last, GREEDY), WITHOUT_ELEMENTS: evaluated(last, BLANK)}
    found |= {f"of {count}": evaluated(last, GREEDY, f"data.elements=[{count},{count}]") for count in ELEMENTS}
    write_row(f"`-p {plugin} seed={seed}`", found, run)
    assert max(found[BEFORE], found["step 0"], found[WITHOUT_ELEMENTS]) < CLAIMED
    assert found[AFTER] > CLAIMED


@pytest.mark.proof
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("plugin", PLUGINS)
def test_controls_learn_nothing(plugin: str, control: str) -> None:
    words = ["-p", plugin, CONTROLS[control], SHORT]
    run = kept(FOLDER.parent / "gui" / f"{plugin}-{control}", *words)
    write_row(f"`{' '.join(words)}`", accuracies(run), run)
    assert max(accuracies(run).values()) < CLAIMED


@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plugin", PLUGINS)
def test_nearest_training_pictures_do_not_solve_the_tasks(plugin: str) -> None:
    found = nearest_neighbours(plugin)
    for name, value in found.items():
        write_row(f"{plugin}: nearest training picture of {name}", {AFTER: value})
    assert found["all"] < CLAIMED


def write_row(name: str, found: Mapping[str, float], run: Path | None = None) -> None:
    """Write a row of the page, and keep the others."""
    known = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith(STARTS)]
    cells = [f"{found[column]:.3f}" if column in found else "" for column in COLUMNS]
    rows = with_row(known, f"| {name} |", [*cells, commit_of(run) if run is not None else ""])
    head = ["| Run | " + " | ".join(COLUMNS) + " | Commit |", "|---|" + "---|" * (len(COLUMNS) + 1)]
    TABLE.write_text("\n".join([INTRODUCTION.lstrip(), *head, *rows]) + "\n", encoding="utf-8")
