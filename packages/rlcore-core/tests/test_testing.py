"""Every check of the conformance suite catches an environment or a reward that is wrong in just that way."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rlcore.episodes.context import EpisodeContext
from rlcore.episodes.rewards import SelectedReward
from rlcore.testing import RewardCase, check_environment, check_plugin, check_reward, make_trajectory
from rlcore.testing.leaks import growth
from rlcore.types import (
    Group,
    ImagePart,
    Message,
    Observation,
    RewardResult,
    Step,
    Stop,
    Task,
    ToolCall,
    ToolSchema,
    Trajectory,
)

QUESTION = Message(role="user", content="What is 40 + 2?")
TASKS = [
    Task(id="a", messages=(QUESTION,), fields={"answer": "42"}),
    Task(id="b", messages=(Message(role="user", content="What is 1 + 1?"),), fields={"answer": "2"}),
]
LOOK_UP = ToolSchema(
    name="look_up", description="Looks the answer up.", parameters={"type": "object", "properties": {"key": {}}}
)


class Quiz:
    """A right environment: one look-up, then the answer."""

    def __init__(self) -> None:
        self.turn = 0
        self.ended = False

    async def reset(self, task: Task, *, seed: int) -> Observation:
        hint = random.Random(seed).random()
        message = Message(role="user", content=f"{task.messages[0].text} (hint {hint:.3f})")
        return Observation(messages=(message,), tools=(LOOK_UP,))

    async def step(self, action: Message) -> Step:
        if self.ended:
            raise RuntimeError("the episode is over")
        self.turn += 1
        self.ended = not action.tool_calls or self.turn > 3
        answers = tuple(
            Message(role="tool", content="found" if call.name == "look_up" else "there is no such tool", name="look_up")
            for call in action.tool_calls
        )
        await asyncio.sleep(0)
        return Step(observation=Observation(messages=answers), terminated=self.ended)

    async def close(self) -> None: ...

    @staticmethod
    def oracle(task: Task) -> Sequence[Message]:
        call = ToolCall(name="look_up", arguments={"key": "x"}, id="1")
        answer = Message(role="assistant", content=task.fields["answer"])
        return [Message(role="assistant", tool_calls=(call,)), answer]


def equal(trajectory: Trajectory, task: Task) -> float:
    return float(trajectory.final_response.strip() == task.fields["answer"])


def selected(function: Any, **changes: Any) -> SelectedReward:
    fields = {"id": "r", "weight": 1.0, "scope": "trajectory", "minimum": 0.0, "maximum": 1.0}
    return SelectedReward(**{**fields, **changes}, function=function)


def check(environment: Callable[[], Any], **options: Any) -> None:
    check_environment(environment, **{"tasks": TASKS, "rewards": [selected(equal)], **options})


def test_correct_environment_passes() -> None:
    check(Quiz)


def test_correct_environment_with_plain_methods_passes() -> None:
    class Plain:
        def __init__(self) -> None:
            self.ended = False

        def reset(self, task: Task, *, seed: int) -> Observation:
            return Observation(messages=task.messages)

        def step(self, action: Message) -> Step:
            return Step(terminated=True)

        def close(self) -> None: ...

        def oracle(self, task: Task) -> Sequence[Message]:
            return [Message(role="assistant", content=task.fields["answer"])]

    check(Plain)


def variant(**methods: Any) -> type[Quiz]:
    return type("Wrong", (Quiz,), methods)


async def unseeded_reset(self: Quiz, task: Task, *, seed: int) -> Observation:
    return Observation(messages=(Message(role="user", content=os.urandom(4).hex()),))


async def global_reset(self: Quiz, task: Task, *, seed: int) -> Observation:
    random.seed(seed)
    return Observation(messages=task.messages)


async def empty_reset(self: Quiz, task: Task, *, seed: int) -> Observation:
    return Observation(messages=())


async def wrong_reset(self: Quiz, task: Task, *, seed: int) -> Any:
    return {"messages": []}


async def opaque_reset(self: Quiz, task: Task, *, seed: int) -> Observation:
    return Observation(messages=(Message(role="user", content=b"bytes"),))  # type: ignore[arg-type]


async def list_reset(self: Quiz, task: Task, *, seed: int) -> Observation:
    return Observation(messages=list(task.messages))  # type: ignore[arg-type]


async def foreign_reset(self: Quiz, task: Task, *, seed: int) -> Observation:
    return Observation(messages=("What is 40 + 2?",))  # type: ignore[arg-type]


async def untrue_step(self: Quiz, action: Message) -> Step:
    return Step(terminated="yes")  # type: ignore[arg-type]


async def unreal_step(self: Quiz, action: Message) -> Step:
    return Step(terminated=True, reward=float("nan"))


async def endless_step(self: Quiz, action: Message) -> Step:
    return Step(observation=Observation(messages=(QUESTION,)))


async def going_on_step(self: Quiz, action: Message) -> Step:
    self.turn += 1
    return Step(terminated=self.turn != 2 and not action.tool_calls)


async def echo_step(self: Quiz, action: Message) -> Step:
    return Step(observation=Observation(messages=(action,)), terminated=not action.tool_calls)


async def strict_step(self: Quiz, action: Message) -> Step:
    for call in action.tool_calls:
        assert call.arguments is not None, "unreadable"
    return await Quiz.step(self, action)


async def silent_step(self: Quiz, action: Message) -> Step:
    if any(call.name != "look_up" for call in action.tool_calls):
        return Step(terminated=True)
    return await Quiz.step(self, action)


async def wrong_step(self: Quiz, action: Message) -> Any:
    return None


async def failing_close(self: Quiz) -> None:
    raise OSError("already gone")


def close_after_reset() -> type[Quiz]:
    class Late(Quiz):
        async def reset(self, task: Task, *, seed: int) -> Observation:
            self.file = "open"
            return await super().reset(task, seed=seed)

        async def close(self) -> None:
            assert self.file

    return Late


def close_once() -> type[Quiz]:
    class Once(Quiz):
        closed = False

        async def close(self) -> None:
            assert not self.closed, "closed already"
            self.closed = True

    return Once


def shared_state() -> type[Quiz]:
    class Shared(Quiz):
        alive: ClassVar[list[Any]] = []

        async def reset(self, task: Task, *, seed: int) -> Observation:
            self.alive.append(self)
            await asyncio.sleep(0.001)
            return Observation(messages=(Message(role="user", content=f"{len(self.alive)} of us"),))

        async def close(self) -> None:
            if self in self.alive:
                self.alive.remove(self)

    return Shared


def shared_answer() -> type[Quiz]:
    """Its methods do not wait, so one episode would end before the next begins, if episodes did not take turns."""

    class Shared(Quiz):
        answer: ClassVar[str] = ""

        def reset(self, task: Task, *, seed: int) -> Observation:  # type: ignore[override]
            type(self).answer = task.fields["answer"]
            return Observation(messages=task.messages, tools=(LOOK_UP,))

        def step(self, action: Message) -> Step:  # type: ignore[override]
            answers = tuple(Message(role="tool", content="found") for _ in action.tool_calls)
            right = float(action.text == self.answer)
            return Step(observation=Observation(messages=answers), reward=right, terminated=not answers)

    return Shared


def leaking_threads() -> type[Quiz]:
    class Leaking(Quiz):
        async def reset(self, task: Task, *, seed: int) -> Observation:
            threading.Thread(target=threading.Event().wait, args=(60,), daemon=True).start()
            return await super().reset(task, seed=seed)

    return Leaking


def leaking_files() -> type[Quiz]:
    class Leaking(Quiz):
        async def reset(self, task: Task, *, seed: int) -> Observation:
            os.open(os.devnull, os.O_RDONLY)
            return await super().reset(task, seed=seed)

    return Leaking


def leaking_tasks() -> type[Quiz]:
    class Leaking(Quiz):
        async def reset(self, task: Task, *, seed: int) -> Observation:
            self.task = asyncio.create_task(asyncio.sleep(60))
            return await super().reset(task, seed=seed)

    return Leaking


def leaking_folders() -> type[Quiz]:
    class Leaking(Quiz):
        async def reset(self, task: Task, *, seed: int) -> Observation:
            tempfile.mkdtemp()
            return await super().reset(task, seed=seed)

    return Leaking


WRONG: list[tuple[type[Quiz], str]] = [
    (variant(reset=unseeded_reset), "reset is not reproducible"),
    (variant(reset=global_reset), "global random state"),
    (variant(reset=empty_reset), "has no messages"),
    (variant(reset=wrong_reset), "reset must return a Observation, not a dict"),
    (variant(reset=opaque_reset), "reset returned a message whose content is of type bytes"),
    (variant(reset=foreign_reset), "reset returned a message of type str"),
    (variant(step=untrue_step), "step returned terminated of type str"),
    (variant(step=unreal_step), "step returned a reward that is not a finite number"),
    (variant(reset=list_reset), "must be a tuple"),
    (variant(step=endless_step), "the episode does not end after"),
    (variant(step=endless_step), "the ideal episode of task 'a' does not end"),
    (variant(step=going_on_step), "a step after the end continues"),
    (variant(step=echo_step), "returns an assistant message"),
    (variant(step=strict_step), "an unreadable tool call makes step raise AssertionError: unreadable"),
    (variant(step=silent_step), "a call of an unknown tool ends the episode without a message"),
    (variant(step=wrong_step), "step must return a Step"),
    (variant(close=failing_close), "close before the reset raises OSError"),
    (close_after_reset(), "close before the reset raises AttributeError"),
    (shared_state(), "they share state"),
    (shared_answer(), "they share state"),
    (leaking_threads(), "8 threads"),
    (leaking_files(), "8 open files"),
    (leaking_tasks(), "8 asyncio tasks"),
    (leaking_folders(), "8 temporary files or folders"),
    (variant(oracle=None), "no ideal episode is known"),
    (
        variant(oracle=lambda self, task: [Message(role="assistant", content="7")]),
        "the ideal episode must score the maximum",
    ),
]


@pytest.mark.parametrize(("environment", "sentence"), WRONG, ids=[sentence for _, sentence in WRONG])
def test_wrong_environment_is_rejected(environment: type[Quiz], sentence: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check(environment)
    assert sentence in str(caught.value)


def test_reward_for_empty_answers_is_rejected() -> None:
    with pytest.raises(AssertionError, match="an empty answer must score the minimum of r"):
        check(Quiz, rewards=[selected(lambda trajectory, task: 1.0)])


class Brief:
    """The best answer is empty."""

    rewards_silence = True

    def __call__(self, trajectory: Trajectory, task: Task) -> float:
        return 1 / (1 + len(trajectory.final_response))


def test_reward_can_declare_that_an_empty_answer_is_best() -> None:
    brief = [case("", 1.0), case("1234", 0.2)]
    check_reward(Brief(), brief)
    check_reward(Brief().__call__, brief, rewards_silence=True)
    with pytest.raises(AssertionError, match="an empty answer must score the minimum"):
        check_reward(Brief().__call__, brief)
    check(Quiz, rewards=[selected(equal), selected(Brief(), rewards_silence=True)])


BRIEF = """
from rlcore import RewardSpec, hookimpl

class Brief:
    def __call__(self, trajectory, task): return 1 / (1 + len(trajectory.final_response))

@hookimpl
def rlcore_rewards():
    yield RewardSpec(id="brief", target="brief_rl_plugin:Brief", summary="Short answers."{declared})
"""


@pytest.mark.parametrize(("declared", "accepted"), [(", rewards_silence=True", True), ("", False)])
def test_plugin_declares_that_an_empty_answer_is_best(
    declared: str, accepted: bool, install: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("brief-rl", BRIEF.format(declared=declared))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    cases = {"brief": [case("", 1.0), case("1234", 0.2)]}
    with nullcontext() if accepted else pytest.raises(AssertionError, match="an empty answer"):
        check_plugin("brief-rl", cases=cases)


@pytest.mark.parametrize("field", ["needs='brief'", "minimum=True", "scope='run'", "summary=['x']"])
def test_plugin_whose_spec_has_a_field_of_the_wrong_type_is_rejected(
    field: str, install: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        "brief-rl", BRIEF.format(declared=f", rewards_silence=True, {field}").replace('summary="Short answers.", ', "")
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(AssertionError, match=f"reward 'brief' has the wrong type: {field.partition('=')[0]} is"):
        check_plugin("brief-rl", cases={"brief": [case("", 1.0), case("1234", 0.2)]})


ROWS = """
from rlcore import DatasetSpec, EnvironmentSpec, Message, Observation, Step, Task, hookimpl

class Environment:
    def reset(self, task, *, seed): return Observation(messages=task.messages)
    def step(self, action): return Step(terminated=True)
    def close(self): ...

class Rows:
    def tasks(self, split): return [Task(id=7, messages=(Message(role="user", content="hi"),))]

M = "rows_rl_plugin"
@hookimpl
def rlcore_environments(): yield EnvironmentSpec(id="rows-rl", target=f"{M}:Environment", summary="Rows.")
@hookimpl
def rlcore_datasets(): yield DatasetSpec(id="rows-rl", target=f"{M}:Rows", summary="Rows.")
"""


def test_plugin_with_invalid_tasks_is_rejected(
    install: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("rows-rl", ROWS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(AssertionError, match="item 0 has an id of type int"):
        check_plugin("rows-rl")


def test_environment_that_can_be_closed_only_once_passes() -> None:
    check(close_once())


def test_metric_need_not_reach_its_bounds() -> None:
    check(Quiz, rewards=[selected(equal), selected(lambda trajectory, task: 0.5, weight=0.0)])


def test_leaked_child_processes_are_counted() -> None:
    children: list[subprocess.Popen[bytes]] = []

    async def spawn() -> None:
        children.append(subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE))

    try:
        assert asyncio.run(growth(spawn))["child processes"] == 1
    finally:
        for child in children:
            child.communicate(b"\n")


def test_environment_can_declare_that_it_has_no_oracle() -> None:
    check(variant(oracle=None), needs_oracle=False)


def test_all_violations_are_reported_at_once() -> None:
    with pytest.raises(AssertionError) as caught:
        check(variant(reset=global_reset, close=failing_close))
    assert "global random state" in str(caught.value)
    assert "close before the reset" in str(caught.value)


def case(answer: str, value: float | None, task: Task = TASKS[0]) -> RewardCase:
    return RewardCase(task=task, trajectory=make_trajectory(*task.messages, answer), value=value)


CASES = [case("42", 1.0), case("41", 0.0), case("2", 1.0, TASKS[1])]


def test_correct_reward_passes() -> None:
    check_reward(equal, CASES)


def test_correct_async_reward_without_a_value_passes() -> None:
    async def judge(trajectory: Trajectory, task: Task) -> RewardResult:
        await asyncio.sleep(0)
        if "answer" not in task.fields:
            return RewardResult(value=None, error="the task has no answer")
        return RewardResult(value=float(trajectory.final_response == task.fields["answer"]))

    without_answer = RewardCase(task=Task(id="c", messages=()), trajectory=make_trajectory("1"), value=None)
    check_reward(judge, [*CASES, without_answer])


def lenient(trajectory: Trajectory, task: Task) -> float:
    return float(trajectory.final_response == task.fields.get("answer"))


class Forgetful:
    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, trajectory: Trajectory, task: Task) -> float:
        self.asked += 1
        return equal(trajectory, task) if self.asked <= 9 else 0.0


def long_winded(trajectory: Trajectory, task: Task) -> float:
    value = equal(trajectory, task)
    return value if len(trajectory.final_response) < 1000 else float(len(trajectory.final_response))


WRONG_REWARDS: list[tuple[Any, str]] = [
    (lambda trajectory, task: 1.0, "the answer '41' must score 0, but scores 1"),
    (lambda trajectory, task: 1.0, "an empty answer must score the minimum (0), but scores 1"),
    (lambda trajectory, task: equal(trajectory, task) * 2, "outside [0, 1]"),
    (lambda trajectory, task: float("nan"), "outside [0, 1]"),
    (lambda trajectory, task: "1", "not a str"),
    (lambda trajectory, task: RewardResult(value=None), "a result without a value needs an error"),
    (lambda trajectory, task: 1 / 0, "ZeroDivisionError"),
    (lambda trajectory, task: RewardResult(value=1.0, components={"a": "b"}), "components whose 'a'"),
    (lambda trajectory, task: RewardResult(value=None, error=3), "an error of type int"),
    (lenient, "a task without its fields scores 0"),
    (Forgetful(), "when scored again in another order"),
    (long_winded, "a text of 200000 characters scores 200000"),
]


@pytest.mark.parametrize(("reward", "sentence"), WRONG_REWARDS, ids=[sentence for _, sentence in WRONG_REWARDS])
def test_wrong_reward_is_rejected(reward: Any, sentence: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_reward(reward, CASES)
    assert sentence in str(caught.value)


def test_cases_must_include_a_correct_answer() -> None:
    with pytest.raises(AssertionError, match="no case scores the maximum"):
        check_reward(equal, [case("41", 0.0)])


def test_plugin_is_checked_by_name() -> None:
    check_plugin("core")


def test_trajectory_from_messages_has_a_valid_shape() -> None:
    tool = Message(role="tool", content="é", name="t")
    call = Message(role="assistant", content="look", tool_calls=(ToolCall(name="t", arguments={}),))
    trajectory = make_trajectory(QUESTION, call, tool, "42", "", task_id="a", stop=Stop.MAX_TURNS)
    assert [turn.kind for turn in trajectory.turns] == ["observation", "policy", "observation", "policy", "policy"]
    (segment,) = trajectory.segments
    assert trajectory.turns[-1].end == len(segment)
    assert trajectory.sampled_tokens == len("look") + len("42") + 1
    assert trajectory.final_response == ""
    assert trajectory.messages[1] == call
    assert make_trajectory("42").final_response == "42"
    assert Group(task=TASKS[0], trajectories=(trajectory,)).rewards_G == (None,)


def test_environment_and_reward_share_the_context_of_the_episode() -> None:
    class Writes(Quiz):
        async def reset(self, task: Task, *, seed: int, context: EpisodeContext) -> Observation:  # type: ignore[override]
            self.file = context.scratch / "state"
            return await super().reset(task, seed=seed)

        async def step(self, action: Message) -> Step:
            self.file.write_text(action.text, "utf-8", "replace")
            return await super().step(action)

    def reads(trajectory: Trajectory, task: Task, context: EpisodeContext) -> float:
        return float((context.scratch / "state").read_text().strip() == task.fields["answer"])

    check(Writes, rewards=[selected(reads)])


def test_scratch_folder_left_after_the_episode_is_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(EpisodeContext, "close", lambda context: (context.scratch / "late").touch())
    with pytest.raises(AssertionError, match="scratch folder"):
        check(Quiz)


def test_image_without_bytes_is_rejected() -> None:
    class Blind(Quiz):
        async def reset(self, task: Task, *, seed: int) -> Observation:
            message = Message(role="user", content=(ImagePart.of(b"PNG"),))
            return Observation(messages=(message,), tools=(LOOK_UP,))

    with pytest.raises(AssertionError, match=r"Observation\.images"):
        check(Blind)
