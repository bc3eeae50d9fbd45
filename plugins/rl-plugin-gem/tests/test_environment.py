"""Episodes of real GEM environments."""

from __future__ import annotations

import logging
import random
from typing import Any

import numpy as np
import pytest
from rl_plugin_gem.config import DataConfig, EnvironmentConfig
from rl_plugin_gem.dataset import GemTasks
from rl_plugin_gem.environment import GemChat
from rlcore.errors import DataError, UserError
from rlcore.testing import check_environment
from rlcore.types import Message, Step, Task

GUESS = {"env_id": "game:GuessTheNumber-v0-easy", "arguments": {"min_number": 1, "max_number": 9, "max_turns": 9}}


def started(task: Task, *, max_turns: int = 20) -> tuple[GemChat, str]:
    environment = GemChat(EnvironmentConfig(max_turns=max_turns))
    return environment, environment.reset(task, seed=5).messages[0].text


def said(environment: GemChat, text: str) -> tuple[Step, str]:
    step = environment.step(Message(role="assistant", content=text))
    return step, "".join(message.text for message in step.observation.messages)


def test_number_is_found_with_the_hints() -> None:
    environment, first = started(GemTasks(DataConfig(**GUESS)).tasks("train")[0])
    assert "between 1 and 9" in first
    assert first.endswith("Enter your next guess.")
    low, high = 1, 9
    while True:
        step, text = said(environment, f"I think \\boxed{{{(low + high) // 2}}}")
        if step.terminated:
            break
        low, high = ((low + high) // 2 + 1, high) if "higher" in text else (low, (low + high) // 2 - 1)
    assert step.reward == 1.0
    assert "Congratulations" in text
    with pytest.raises(RuntimeError):
        said(environment, "\\boxed{1}")


def test_number_of_turns_is_limited() -> None:
    environment, _ = started(GemTasks(DataConfig(**GUESS)).tasks("train")[0], max_turns=1)
    step, _ = said(environment, "\\boxed{100}")
    assert (step.terminated, step.truncated, step.reward) == (False, True, 0.0)


def test_seeds_determine_episodes_and_the_global_generators_stay_untouched() -> None:
    tasks = GemTasks(DataConfig(**GUESS, train=6, evaluation=2))
    outside = random.getstate(), np.random.get_state()[1].tolist()
    firsts = [started(task)[1] for task in tasks.tasks("train")]
    again = [started(task)[1] for task in reversed(tasks.tasks("train"))][::-1]
    assert firsts == again
    assert len(set(firsts)) > 1
    assert (random.getstate(), np.random.get_state()[1].tolist()) == outside
    seeds = [task.fields["seed"] for split in ("train", "evaluation") for task in tasks.tasks(split)]
    assert seeds == [0, 1, 2, 3, 4, 5, 2**31, 2**31 + 1]


def test_opening_replaces_the_rules() -> None:
    data = GemTasks(DataConfig(**GUESS, opening="1 to 9"))
    assert started(data.tasks("train")[0])[1] == "1 to 9"
    assert next(iter(data.demonstrations(1, seed=0))).messages[0].text == "1 to 9"


def test_import_of_gem_leaves_logging_alone() -> None:
    GemTasks(DataConfig())
    assert logging.getLogger().level == logging.WARNING


@pytest.mark.parametrize("env_id", ["game:Mastermind-v0-easy", "game:Sudoku-v0-easy", "rg:simple_equations"])
def test_environments_of_gem_conform(env_id: str) -> None:
    tasks = GemTasks(DataConfig(env_id=env_id)).tasks("train")[:2]
    check_environment("gem", options={"max_turns": 4}, tasks=tasks, rewards=["gem-return"], needs_oracle=False)


def test_demonstrations_are_random_episodes() -> None:
    data = GemTasks(DataConfig(**GUESS))
    first = list(data.demonstrations(3, seed=1))
    assert first == list(data.demonstrations(3, seed=1)) != list(data.demonstrations(3, seed=2))
    assert all("\\boxed{" in each.messages[1].text for each in first)
    assert all(each.messages[-1].role == "assistant" for each in first)
    with pytest.raises(DataError):
        list(GemTasks(DataConfig(env_id="rg:simple_equations")).demonstrations(1, seed=0))


@pytest.mark.parametrize(
    ("data", "fragment"),
    [
        ({"env_id": "game:GuessTheNumber"}, "GuessTheNumber-v0"),
        ({"env_id": "code:CodeContest"}, "sandbox"),
        ({**GUESS, "arguments": {"min_number": "a"}}, "gem.make"),
    ],
)
def test_unusable_environments_are_errors_before_the_run(data: dict[str, Any], fragment: str) -> None:
    with pytest.raises(UserError, match=fragment):
        GemTasks(DataConfig(**data))
