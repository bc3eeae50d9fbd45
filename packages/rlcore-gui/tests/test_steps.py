"""Steps are plain data in the fields of a task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlcore.errors import DataError
from rlcore.types import Task, from_json, to_json
from rlcore_gui.actions import Action
from rlcore_gui.steps import GuiStep, steps_of

STEP = GuiStep(
    row_id="install-7-2",
    episode_id="7",
    step_index=2,
    group="install",
    task="Open the app's settings",
    image=Path("install/7_2.png"),
    image_size=(1080, 2400),
    action=Action(name="CLICK", position=(0.5, 0.25)),
    boxes=((0.1, 0.2, 0.3, 0.4),),
    memory="The store is open.",
    next_row_id="install-7-3",
    source={"touch": [0.25, 0.5], "lift": [0.25, 0.5]},
)
SKIPPED = GuiStep(
    row_id="m-1",
    episode_id="m",
    step_index=0,
    group="task",
    task="t",
    image=None,
    image_size=None,
    action=Action(name="TYPE", value="don't"),
)


def test_steps_of_a_stored_task_are_the_same() -> None:
    task = Task(id="1", messages=(), fields={"steps": [STEP.as_fields(), SKIPPED.as_fields()]})
    stored = from_json(Task, json.loads(json.dumps(to_json(task))))
    assert steps_of(task) == steps_of(stored) == (STEP, SKIPPED)


@pytest.mark.parametrize("steps", [None, [], "text", [{}], [{**STEP.as_fields(), "boxes": [[1, 2]]}], [3]])
def test_task_without_valid_steps_is_a_data_error(steps: object) -> None:
    with pytest.raises(DataError):
        steps_of(Task(id="1", messages=(), fields={"steps": steps}))
