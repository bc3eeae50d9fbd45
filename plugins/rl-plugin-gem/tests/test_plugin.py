from __future__ import annotations

from rl_plugin_gem.making import World
from rlcore.testing import RewardCase, check_plugin, make_trajectory
from rlcore.types import Message, Task

EMPTY = RewardCase(task=Task(id="a", messages=()), trajectory=make_trajectory("1"), value=0.0)
FULL = RewardCase(task=EMPTY.task, trajectory=make_trajectory("1", metrics={"step_reward": 2.5}), value=2.5)


def oracle(task: Task) -> list[Message]:
    """The number of the task, found by trying all of them."""
    for guess in range(1, 4):
        world = World(task.fields["env_id"], task.fields["arguments"], task.fields["seed"])
        world.reset()
        answer = f"\\boxed{{{guess}}}"
        _, reward, terminated, _, _ = world.step(answer)
        if terminated and reward == 1.0:
            return [Message(role="assistant", content=answer)]
    raise AssertionError("no number is right")


def test_plugin_conforms() -> None:
    check_plugin("gem", oracles={"gem": oracle}, cases={"gem-return": [EMPTY, FULL]})
