from __future__ import annotations

from rl_plugin_openenv.config import RowsConfig
from rl_plugin_openenv.nemo_gym_rows import Rows
from rlcore.testing import RewardCase, check_plugin, make_trajectory
from rlcore.types import Message, Task, ToolCall

TASK = Task(id="a", messages=())
CASES = [
    RewardCase(task=TASK, trajectory=make_trajectory("1", metrics={"step_reward": 2.5}), value=2.5),
    RewardCase(task=TASK, trajectory=make_trajectory("1"), value=None),
]


def opened(task: Task) -> list[Message]:
    """The doors that the demo has for its seeds, tried one after the other."""
    return [Message(role="assistant", content=color) for color in ("black", "red")]


def pressed(task: Task) -> list[Message]:
    call = ToolCall(name="press", arguments={"times": task.fields["row"]["wanted"]}, id="0")
    return [Message(role="assistant", tool_calls=(call,)), Message(role="assistant", content="done")]


def test_plugin_conforms() -> None:
    oracles = {"openenv": opened, "openenv-images": opened, "nemo-gym": pressed}
    check_plugin("openenv", oracles=oracles, cases={"openenv-return": CASES})


def test_held_out_rows_of_the_demo_are_other_ones() -> None:
    rows = Rows(RowsConfig())
    shown = {split: {task.messages[0].text for task in rows.tasks(split)} for split in ("train", "evaluation")}
    assert not shown["train"] & shown["evaluation"]
    assert len(shown["evaluation"]) == 8
