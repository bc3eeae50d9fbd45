"""Classes that were written for TRL's ``environment_factory``."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rlcore.cli.run import run
from rlcore.errors import DataError, EnvironmentFailure, UserError
from rlcore.plugins.registry import Registry
from rlcore.specs import EnvironmentSpec
from rlcore.testing import check_plugin, make_trajectory
from rlcore.transport.hosting import HostedEnvironments, interpreters
from rlcore.types import Message, Observation, Step, Stop, Task, ToolCall
from rlcore_compat import trl_environment
from rlcore_compat.trl_config import TrlDataConfig, TrlEnvironmentConfig
from rlcore_compat.trl_environment import TrlEnvironment, trl_environment_reward
from rlcore_compat.trl_tasks import TrlTasks

HERE = __file__


class Lamp:
    """Draws its task itself, as many environments of TRL do."""

    def reset(self, **columns: Any) -> str:
        self.wanted, self.log = random.randint(0, 10**9), []
        return f" Wanted: {self.wanted}."

    def press(self, name: str, times: int = 1) -> str:
        """Press a button.

        Args:
            name: Of the button.
            times: How often.
        """
        if name == "broken":
            raise ValueError("The button is broken.")
        self.log += [name] * times
        return f"pressed {len(self.log)}"

    async def look(self) -> list[str]:
        """Look at the lamp."""
        return self.log

    async def get_reward(self) -> float:
        return float(self.log == ["a", "b"])

    def _hidden(self) -> None: ...


class Silent:
    def reset(self, number: int, prompt: Any) -> None:
        self.number, self.prompt = number, prompt

    def tell(self) -> int:
        """Tell the number."""
        return self.number


class Faulty(Silent):
    """Its number says how."""

    def reset(self, number: int, prompt: Any) -> Any:
        super().reset(number, prompt)
        if number == 0:
            time.sleep(60)
        return "x" * 300_000 if number == 1 else None

    def get_reward(self) -> Any:
        return {2: float("nan"), 3: "good", 4: 10**400}.get(self.number, 1.0)


class Resetless:
    def press(self) -> None:
        """Press."""


def length(completions: Any, environments: Any, number: Any, **columns: Any) -> list[float]:
    (completion,), (environment,) = completions, environments
    assert environment.number == number[0]
    assert environment.prompt == [{"role": "user", "content": "Go."}]
    return [float(len(completion))]


def one_number(completions: Any, **columns: Any) -> Any:
    return 0.5


def none(prompts: Any, **columns: Any) -> list[None]:
    assert prompts == [[{"role": "user", "content": "Go."}]]
    return [None]


def made(name: str, **options: Any) -> TrlEnvironment:
    return TrlEnvironment(TrlEnvironmentConfig(factory=f"{HERE}:{name}", **options))


def play(
    environment: TrlEnvironment, task: Task, said: Sequence[Message], seed: int = 0
) -> tuple[Observation, list[Step]]:
    async def run() -> tuple[Observation, list[Step]]:
        first = await environment.reset(task, seed=seed)
        steps = [await environment.step(message) for message in said]
        await environment.close()
        return first, steps

    return asyncio.run(run())


def calls(*made: tuple[str, dict[str, Any]]) -> Message:
    called = (ToolCall(name=name, arguments=values, id=f"call_{n}") for n, (name, values) in enumerate(made))
    return Message(role="assistant", tool_calls=tuple(called))


TASK = Task(id="1", messages=(Message(role="user", content="Go."),), fields={"number": 7})
DONE = Message(role="assistant", content="done")


def test_public_methods_are_tools_and_run_in_order() -> None:
    pressed = calls(("press", {"name": "a"}), ("press", {"name": "b"}), ("look", {}), ("press", {"name": "broken"}))
    first, (step, end) = play(made("Lamp"), TASK, [pressed, DONE])
    assert [tool.name for tool in first.tools] == ["look", "press"]
    assert first.tools[1].parameters["properties"]["times"] == {
        "type": "integer",
        "default": 1,
        "description": "How often.",
    }
    texts = [message.text for message in step.observation.messages]
    assert texts == ["pressed 1", "pressed 2", '["a", "b"]', "Error: The button is broken."]
    assert (step.reward, end.reward, end.info["reward/Lamp"]) == (None, 1.0, 1.0)


def test_a_task_begins_in_the_same_state_for_all_siblings() -> None:
    state = random.getstate()
    texts = [play(made("Lamp"), TASK, [], seed)[0].messages[-1].text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("Go. Wanted: ")
    assert random.getstate() == state


def test_reward_functions_of_trl_get_the_episode_and_are_weighted() -> None:
    environment = made("Silent", rewards=[f"{HERE}:length", f"{HERE}:none"], reward_weights=[0.5, 3])
    _, (_, end) = play(environment, TASK, [calls(("tell", {})), DONE])
    assert end.reward == 1.5  # of three messages
    assert dict(end.info)["reward/length"] == 1.5
    cut = play(made("Silent", rewards=[f"{HERE}:length"], max_turns=1), TASK, [calls(("tell", {}))])[1][0]
    assert (cut.stop, cut.reward) == (Stop.MAX_TURNS, 1.0)


def numbered(number: int) -> Task:
    return dataclasses.replace(TASK, fields={"number": number})


@pytest.mark.parametrize(
    ("number", "reason"), [(2, "it returned nan"), (3, "it returned 'good'"), (4, "it returned 1")]
)
def test_rewards_that_are_no_finite_numbers_are_failures(number: int, reason: str) -> None:
    with pytest.raises(EnvironmentFailure, match=f"get_reward must return a finite number, {reason}"):
        play(made("Faulty"), numbered(number), [DONE])


def test_other_faults_are_failures_with_the_reason() -> None:
    with pytest.raises(EnvironmentFailure, match="one_number must return a list with a value for each completion"):
        play(made("Silent", rewards=[f"{HERE}:one_number"]), TASK, [DONE])
    with pytest.raises(EnvironmentFailure, match="300,000 characters; the limit is 200,000"):
        play(made("Faulty"), numbered(1), [])
    _, (end,) = play(made("Silent", rewards=[f"{HERE}:length"] * 2), TASK, [DONE])
    assert end.reward == 2.0  # of both


def test_a_reset_that_hangs_does_not_stop_the_other_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trl_environment, "ALONE_S", 0.2)

    async def together() -> None:
        hanging = asyncio.create_task(made("Faulty").reset(numbered(0), seed=0))
        await asyncio.sleep(0.05)
        others = (made("Faulty").reset(numbered(5), seed=0) for _ in range(8))
        await asyncio.wait_for(asyncio.gather(*others), 5)
        hanging.cancel()

    asyncio.run(together())


@pytest.mark.parametrize("hosted", [False, True])
def test_a_cut_episode_gets_its_rewards(hosted: bool) -> None:
    spec = Registry().spec("environment", "trl-environment")
    assert isinstance(spec, EnvironmentSpec)
    options = TrlEnvironmentConfig(factory=f"{HERE}:Silent", rewards=[f"{HERE}:length"], reward_weights=[-1])
    if not hosted:
        environment = TrlEnvironment(options)
        asyncio.run(environment.reset(TASK, seed=0))
        step = asyncio.run(environment.cut(DONE))
        assert (step.reward, dict(step.info)) == (-1.0, {"reward/length": -1.0})
        return
    environments = HostedEnvironments(interpreters(spec), spec=spec, options=options, timeout_s=30)
    there = environments.make()
    try:
        there.reset(TASK, seed=0)
        there.step(calls(("tell", {})))
        assert there.cut(None).reward == -2.0
    finally:
        there.close()
        environments.close()


@pytest.mark.parametrize("python", [[], [f"environment.python={sys.executable}"]])
def test_a_dry_run_names_functions_that_cannot_be_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: list[str]
) -> None:
    pytest.importorskip("rlcore_trainer", reason="the recipe needs rlcore-rollout and rlcore-trainer")
    (tmp_path / "neighbour_of_lamp.py").write_text("LAMP = 1\n")
    (tmp_path / "lamp.py").write_text(
        "import neighbour_of_lamp\nfrom rlcore_compat.counters import Counter\n"
        "def good(completions, start, **columns): ...\n"
        "def tokens(completions, completion_ids, **columns): ...\n"
        "def closed(completions): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    names = '["lamp.py:good", "lamp.py:tokens", "lamp.py:closed"]'
    given = ["environment.factory=lamp.py:Counter", f"environment.rewards={names}", *python]
    text = str(CliRunner().invoke(run, ["-p", "compat", "--dry-run", *given]).exception)
    assert "lamp.py:tokens cannot be called: missing a required argument: 'completion_ids'" in text
    assert "lamp.py:closed cannot be called: got an unexpected keyword argument" in text
    assert "lamp.py:good cannot" not in text


def test_an_episode_without_a_reward_is_not_scored() -> None:
    _, (end,) = play(made("Silent"), TASK, [DONE])
    assert end.reward is None
    trajectory = make_trajectory("Go.", "done")
    assert trl_environment_reward(trajectory, TASK).value is None
    assert trl_environment_reward(trajectory.replace(stop=Stop.LENGTH), TASK).value is None


def test_mistakes_are_errors() -> None:
    with pytest.raises(UserError, match="needs the method reset"):
        made("Resetless")
    with pytest.raises(UserError, match="does not exist"):
        made("Lamb")
    with pytest.raises(ValueError, match="2 rewards need as many reward_weights, not 1"):
        made("Silent", rewards=["a:b", "a:c"], reward_weights=[1])


def test_tasks_are_rows_or_seeds(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        '{"prompt": [{"role": "user", "content": "Go."}], "number": 7}\n{"number": 8}\n'
    )
    found = TrlTasks(TrlDataConfig(train=str(tmp_path / "rows.jsonl"), evaluation=3))
    assert [(task.messages, dict(task.fields)) for task in found.tasks("train")] == [
        (TASK.messages, {"number": 7}),
        ((), {"number": 8}),
    ]
    assert [task.id for task in found.tasks("evaluation")] == ["evaluation:0", "evaluation:1", "evaluation:2"]
    (tmp_path / "bad.jsonl").write_text('{"prompt": [{"role": "captain"}]}\n')
    with pytest.raises(DataError, match="must be a text, or messages"):
        TrlTasks(TrlDataConfig(train=str(tmp_path / "bad.jsonl"))).tasks("train")


def test_plugin_fulfils_the_contracts() -> None:
    def solved(task: Task) -> Sequence[Message]:
        return [calls(("increment", {"step": task.fields["amount"]})), DONE]

    check_plugin("compat", oracles={"trl-environment": solved})
