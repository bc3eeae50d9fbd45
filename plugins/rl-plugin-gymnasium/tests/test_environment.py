"""Episodes of real Gymnasium environments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from rl_plugin_gymnasium.config import DataConfig, EnvironmentConfig
from rl_plugin_gymnasium.dataset import GymnasiumTasks
from rl_plugin_gymnasium.environment import GymnasiumChat
from rlcore.errors import DataError, UserError
from rlcore.testing import check_environment
from rlcore.types import Message, Step

LAKE = {"make": "FrozenLake-v1", "arguments": {"is_slippery": False}, "actions": ["left", "down", "right", "up"]}


def started(data: dict[str, Any], *, max_turns: int = 20) -> tuple[GymnasiumChat, str]:
    environment = GymnasiumChat(EnvironmentConfig(max_turns=max_turns))
    first = environment.reset(GymnasiumTasks(DataConfig(**data)).tasks("train")[0], seed=9)
    return environment, first.messages[0].text


def said(environment: GymnasiumChat, text: str) -> tuple[Step, str]:
    step = environment.step(Message(role="assistant", content=text))
    return step, step.observation.messages[0].text


def test_lake_is_crossed_with_words() -> None:
    environment, first = started(LAKE)
    assert first == "You control FrozenLake-v1. Answer with one of these actions: left, down, right, up.\n0"
    shown = [said(environment, text) for text in ("down", "go down", "right", "right", "down")]
    assert [text for _, text in shown] == ["4", "8", "9", "10", "14"]
    last, _ = said(environment, "right")
    assert (last.reward, last.terminated, last.truncated) == (1.0, True, False)
    with pytest.raises(RuntimeError):
        said(environment, "left")
    environment.close()


def test_invalid_action_costs_a_turn_and_says_what_is_valid() -> None:
    environment, _ = started(LAKE, max_turns=2)
    step, text = said(environment, "jump")
    assert (step.reward, step.truncated, step.info["invalid_actions"]) == (None, False, 1)
    assert text == "Invalid action. Answer with one of these actions: left, down, right, up."
    step, _ = said(environment, "down")
    assert (step.truncated, step.terminated, step.info["invalid_actions"]) == (True, False, 0)


def test_rendered_text_shows_the_highlighted_field_in_brackets() -> None:
    environment, first = started({**LAKE, "show": "ansi", "instructions": "Cross the lake."})
    assert first.splitlines() == ["Cross the lake.", "[S]FFF", "FHFH", "FFFH", "HFFG"]
    assert "[F]HFH" in said(environment, "down")[1]


def test_time_limit_of_gymnasium_truncates() -> None:
    environment, _ = started({**LAKE, "arguments": {"is_slippery": False, "max_episode_steps": 2}})
    assert not said(environment, "left")[0].truncated
    assert said(environment, "left")[0].truncated


@pytest.mark.parametrize("make", ["Blackjack-v1", "CartPole-v1", "Taxi-v4", "CliffWalking-v1", "Acrobot-v1"])
def test_environments_of_gymnasium_conform(make: str) -> None:
    data = DataConfig(make=make, train=3)
    tasks = GymnasiumTasks(data).tasks("train")
    config = {"max_turns": 5}
    check_environment("gymnasium", options=config, tasks=tasks, rewards=["gymnasium-return"], needs_oracle=False)


def test_seeds_determine_tasks_and_differ_between_splits() -> None:
    data = GymnasiumTasks(DataConfig(make="CartPole-v1", train=4, evaluation=2))
    seeds = {split: [task.fields["seed"] for task in data.tasks(split)] for split in ("train", "evaluation")}
    assert seeds == {"train": [0, 1, 2, 3], "evaluation": [2**31, 2**31 + 1]}
    firsts = set()
    for task in data.tasks("train") + data.tasks("evaluation"):
        environment = GymnasiumChat(EnvironmentConfig())
        firsts.add(environment.reset(task, seed=1).messages[0].text)
        environment.close()
    assert len(firsts) == 6


def test_demonstrations_are_random_episodes_with_valid_actions() -> None:
    data = GymnasiumTasks(DataConfig(**LAKE))
    first = list(data.demonstrations(5, seed=1))
    assert first == list(data.demonstrations(5, seed=1)) != list(data.demonstrations(5, seed=2))
    for demonstration in first:
        roles = [message.role for message in demonstration.messages]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        assert {m.text for m in demonstration.messages if m.role == "assistant"} <= set(LAKE["actions"])


MINE = """
import gymnasium
from gymnasium import spaces

class Echo(gymnasium.Env):
    observation_space = spaces.Text(20)
    action_space = spaces.Text(20)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "say hi", {}
    def step(self, action):
        return "bye", float(action == "hi"), True, False, {"length": len(action), "text": "x"}

gymnasium.register("Echo-v0", entry_point=Echo)
"""


def test_module_that_registers_an_environment_is_named_before_its_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlcore.cli.layering import import_lines
    from rlcore.config.layers import override_layers

    (tmp_path / "echoes.py").write_text(MINE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    data = {"make": "echoes:Echo-v0", "instructions": ""}
    (line,) = import_lines(override_layers(["data.make=echoes:Echo-v0"]))
    assert line.startswith("imports   echoes:Echo-v0 for data.make")
    assert "echoes" not in sys.modules
    environment, first = started(data)
    assert first == "say hi"
    step, text = said(environment, "hi")
    assert (text, step.reward, step.terminated, step.info["length"]) == ("bye", 1.0, True, 2.0)
    with pytest.raises(DataError):
        list(GymnasiumTasks(DataConfig(**data)).demonstrations(1, seed=0))


@pytest.mark.parametrize(
    ("data", "fragment"),
    [
        ({"make": "FrozenLak-v1"}, "FrozenLake"),
        ({"make": "no_such_module_at_all:X-v0"}, "no_such_module_at_all"),
        ({"make": "FrozenLake-v1", "arguments": {"colour": 1}}, "colour"),
        ({"make": "Pendulum-v1"}, "Discrete"),
        ({"make": "CartPole-v1", "show": "ansi"}, "ansi"),
        ({"make": "CartPole-v1", "actions": ["left"]}, "2 different names"),
    ],
)
def test_unusable_environments_are_errors_before_the_run(data: dict[str, Any], fragment: str) -> None:
    with pytest.raises(UserError, match=fragment):
        GymnasiumTasks(DataConfig(**data))
