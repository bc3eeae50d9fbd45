from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, ConfigDict
from rlcore.errors import EngineError, PluginError, UserError
from rlcore.loading import load_attribute
from rlcore.run import Run
from rlcore.types import EndReason, Message, Observation, RolloutRequest, Sampling, Step, Task, Trajectory
from rlcore.weights import FolderWeights
from rlcore_rollout.executors.local import LocalExecutor, _check_vocabulary

HERE = __file__


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")
    mode: str = "fine"


class Guess:
    """Two turns, then the end; ``mode`` says what goes wrong. Odd tasks take longer than even ones."""

    Config = Config
    alive = 0
    most_alive = 0
    closed = 0
    seeds: ClassVar[dict[str, set[int]]] = {}

    def __init__(self, config: Config) -> None:
        self.mode = config.mode
        self.turn = 0
        Guess.alive += 1
        Guess.most_alive = max(Guess.alive, Guess.most_alive)

    async def reset(self, task: Task, *, seed: int) -> Observation:
        Guess.seeds.setdefault(task.id, set()).add(seed)
        self.task = task
        if self.mode == "broken-2" and task.id == "t2":
            raise RuntimeError("no such level")
        return Observation(messages=task.messages)

    async def step(self, action: Message) -> Step:
        self.turn += 1
        await asyncio.sleep(0.02 if int(self.task.id[1:]) % 2 else 0.002)
        if self.mode == "hang":
            await asyncio.sleep(60)
        message = Message(role="tool", content=f"{self.task.id} turn {self.turn}")
        return Step(observation=Observation(messages=(message,)), terminated=self.turn == 2)

    async def close(self) -> None:
        Guess.alive -= 1
        Guess.closed += 1


class Tasks:
    def tasks(self, split: str) -> Sequence[Task]:
        return [Task(id=f"t{n}", messages=(Message(role="user", content=f"guess {n}"),)) for n in range(6)]


def right(trajectory: Trajectory, task: Task) -> float:
    return float(task.id in trajectory.messages[-1].text)


def ranked() -> Callable[..., list[float]]:
    return lambda group: [trajectory.sibling / 10 for trajectory in group.trajectories]


def seeded(prompt_ids: Sequence[int], sampling: Sampling) -> str:
    """An answer that depends on nothing but the seed and the prompt's length."""
    return str(random.Random(f"{sampling.seed} {len(prompt_ids)} {sampling.temperature}").random())


def dead(prompt_ids: Sequence[int], sampling: Sampling) -> str:
    raise ConnectionError("the GPU fell off the bus")


def half_dead(prompt_ids: Sequence[int], sampling: Sampling) -> str:
    return "fine" if sampling.seed % 2 else dead(prompt_ids, sampling)


Open = Callable[..., LocalExecutor]


@pytest.fixture(autouse=True)
def without_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where this package is installed alone; and nobody waits for torch."""
    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", "trainer")


@pytest.fixture
def folder(make_folder: Callable[..., Path]) -> Path:
    return make_folder()


@pytest.fixture
def environment() -> type[Guess]:
    """The class as the run imports it, with fresh counts."""
    found: type[Guess] = load_attribute(f"{HERE}:Guess")
    found.alive = found.most_alive = found.closed = 0
    found.seeds = {}
    return found


@pytest.fixture
def open_executor(folder: Path, environment: type[Guess]) -> Iterator[Open]:
    opened: list[LocalExecutor] = []

    def open_(mode: str = "fine", *, function: str = "seeded", model: Any = None, **rollout: Any) -> LocalExecutor:
        values = {
            "model": {"path": str(folder), "chat_format": "plain", **(model or {})},
            "environment": {"id": f"{HERE}:Guess", "mode": mode},
            "data": {"id": f"{HERE}:Tasks"},
            "reward": [{"id": f"{HERE}:right"}],
            "rollout": {"engine": "scripted", "scripted": {"function": f"{HERE}:{function}"}, **rollout},
        }
        run = Run.create(values, purpose="evaluation")
        opened.append(LocalExecutor(run, FolderWeights(folder=folder)))
        return opened[-1]

    yield open_
    for executor in opened:
        executor.close()


def request(count: int = 6, group_size: int = 3, **changes: Any) -> RolloutRequest:
    fields: dict[str, Any] = {"tasks": Tasks().tasks("train")[:count], "group_size": group_size, "seed": 5, "step": 1}
    return RolloutRequest(**{**fields, **changes})


def test_groups_stand_in_the_order_of_the_tasks_whatever_finished_first(open_executor: Open) -> None:
    groups = open_executor().collect(request())
    assert [group.task.id for group in groups] == [f"t{n}" for n in range(6)]
    for group in groups:
        assert [trajectory.sibling for trajectory in group.trajectories] == [0, 1, 2]
        assert {trajectory.task_id for trajectory in group.trajectories} == {group.task.id}
        assert group.rewards_G == (1.0, 1.0, 1.0)
        assert all(trajectory.end_reason is EndReason.DONE for trajectory in group.trajectories)


def test_the_same_request_gives_the_same_trajectories(open_executor: Open) -> None:
    executor = open_executor()
    first = executor.collect(request())
    assert executor.collect(request()) == first
    assert open_executor(concurrency=2).collect(request()) == first


def test_siblings_share_the_environments_seed_and_differ_in_what_is_sampled(
    open_executor: Open, environment: type[Guess]
) -> None:
    executor = open_executor()
    groups = executor.collect(request())
    assert all(len(seeds) == 1 for seeds in environment.seeds.values())
    assert len({seed for seeds in environment.seeds.values() for seed in seeds}) == 6
    sampled = {trajectory.final_response for group in groups for trajectory in group.trajectories}
    assert len(sampled) == 18
    other = executor.collect(request(purpose="evaluation"))
    assert all(len(seeds) == 1 for seeds in environment.seeds.values()), "an evaluation sees the same initial states"
    assert sampled.isdisjoint({trajectory.final_response for group in other for trajectory in group.trajectories})


def test_a_request_may_change_how_tokens_are_sampled(open_executor: Open) -> None:
    executor = open_executor()
    warm = executor.collect(request(1, 1))[0].trajectories[0].final_response
    cold = executor.collect(request(1, 1, sampling={"temperature": 0.0}))[0].trajectories[0].final_response
    assert warm != cold


def test_no_more_than_the_concurrency_is_alive(open_executor: Open, environment: type[Guess]) -> None:
    open_executor(concurrency=4).collect(request())
    assert environment.most_alive == 4
    assert (environment.alive, environment.closed) == (0, 18)


def test_one_failing_environment_leaves_the_others_alone(
    open_executor: Open, environment: type[Guess], capsys: pytest.CaptureFixture[str]
) -> None:
    groups = open_executor("broken-2").collect(request())
    assert [group.rewards_G for group in groups] == [(1.0,) * 3] * 2 + [(None,) * 3] + [(1.0,) * 3] * 3
    assert {t.end_reason for t in groups[2].trajectories} == {EndReason.ENVIRONMENT_ERROR}
    assert "RuntimeError: no such level" in (groups[2].trajectories[0].error or "")
    assert environment.closed == 18
    printed = "".join(capsys.readouterr()).replace("\n", " ")
    assert "3 of 18 trajectories were not scored" in printed


def test_a_dead_engine_is_an_error_and_a_stumbling_one_is_data(open_executor: Open) -> None:
    with pytest.raises(EngineError, match="the GPU fell off the bus"):
        open_executor(function="dead").collect(request())
    groups = open_executor(function="half_dead").collect(request())
    reasons = {trajectory.end_reason for group in groups for trajectory in group.trajectories}
    assert reasons == {EndReason.DONE, EndReason.ENGINE_ERROR}


def test_deadlines_come_from_the_rollout_table(open_executor: Open, environment: type[Guess]) -> None:
    start = time.monotonic()
    groups = open_executor("hang", environment_timeout_s=0.1).collect(request())
    assert time.monotonic() - start < 30, "not the minute that an environment hangs"
    assert {t.end_reason for group in groups for t in group.trajectories} == {EndReason.TIMEOUT}
    assert environment.alive == 0


def test_the_context_is_limited_by_the_run_and_by_the_model(open_executor: Open, folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 70}), encoding="utf-8")
    for limit in (None, 1000):
        long = open_executor(max_context_tokens=limit).collect(request(1, 1))[0].trajectories[0]
        assert long.end_reason is EndReason.LENGTH
        assert len(long.token_ids) <= 70
    short = open_executor(max_context_tokens=30).collect(request(1, 1))[0].trajectories[0]
    assert len(short.token_ids) <= 30


def test_the_chat_format_is_found_by_the_folder_or_named(open_executor: Open, folder: Path) -> None:
    with pytest.raises(PluginError, match="no chat format knows"):
        open_executor(model={"chat_format": "auto"})
    path = folder / "tokenizer_config.json"
    names = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**names, "rlcore_chat_format": "plain"}), encoding="utf-8")
    automatic = open_executor(model={"chat_format": "auto"}).chat_format
    assert type(automatic).__name__ == "PlainFormat"
    react = open_executor(model={"tool_parser": "react"}).chat_format
    assert type(react.parser).__name__ == "ReactParser"


def test_completions_carry_the_version_of_the_last_weights(open_executor: Open, folder: Path) -> None:
    executor = open_executor()
    executor.sync_weights(FolderWeights(folder=folder, version=7))
    turns = executor.collect(request(1, 1))[0].trajectories[0].turns
    assert {turn.policy_version for turn in turns if turn.kind == "policy"} == {7}


def test_group_rewards_judge_the_siblings_together(folder: Path, environment: type[Guess]) -> None:
    values = {
        "model": {"path": str(folder), "chat_format": "plain"},
        "environment": {"id": f"{HERE}:Guess"},
        "data": {"id": f"{HERE}:Tasks"},
        "reward": [{"id": f"{HERE}:right"}],
        "rollout": {"engine": "scripted", "scripted": {"replies": ["x"]}},
    }
    run = Run.create(values, purpose="evaluation")
    (single,) = run.rewards
    group = type(single)(id="ranked", weight=2.0, scope="group", function=ranked(), minimum=0.0, maximum=1.0)
    run._rewards = (single, group)
    executor = LocalExecutor(run, FolderWeights(folder=folder))
    groups = executor.collect(request())
    executor.close()
    assert all(group.rewards_G == (1.0, 1.2, 1.4) for group in groups)


def test_nothing_is_left_after_close(folder: Path, open_executor: Open) -> None:
    before = {thread.name for thread in threading.enumerate()}
    executor = open_executor()
    executor.collect(request())
    executor.close()
    left = {thread.name for thread in threading.enumerate()} - before
    assert all(name.startswith("rlcore") for name in left), "only the idle threads that everybody shares"


HANGING = """
import signal, sys, threading
from pathlib import Path
from rlcore.run import Run
from rlcore.types import RolloutRequest, Observation, Step
from rlcore.weights import FolderWeights
from rlcore_rollout.executors.local import LocalExecutor

class Hanging:
    def reset(self, task, *, seed): return Observation(messages=task.messages)
    async def step(self, action):
        import asyncio
        print("step", flush=True)
        await asyncio.to_thread(threading.Event().wait)
    def close(self): print("closed", flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
sys.modules["hanging"] = sys.modules["__main__"]
here, folder, timeout_s = sys.argv[1:]
values = {
    "model": {"path": folder, "chat_format": "plain"},
    "environment": {"id": "hanging:Hanging"},
    "data": {"id": here + ":Tasks"},
    "reward": [{"id": here + ":right"}],
    "rollout": {"engine": "scripted", "scripted": {"replies": ["x"]}, "environment_timeout_s": float(timeout_s)},
}
run = Run.create(values, purpose="evaluation")
executor = LocalExecutor(run, FolderWeights(folder=Path(folder)))
try:
    print("start", flush=True)
    executor.collect(RolloutRequest(tasks=run.dataset.tasks("train")[:1], group_size=2, seed=0, step=0))
finally:
    executor.close()
print("end", flush=True)
"""


def test_a_hung_thread_does_not_keep_the_process_from_ending(folder: Path) -> None:
    command = [sys.executable, "-c", HANGING, HERE, str(folder), "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "end"


def test_an_interrupt_closes_the_environments(folder: Path) -> None:
    command = [sys.executable, "-c", HANGING, HERE, str(folder), "60"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)] == ["start\n", "step\n", "step\n"]
    os.kill(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=120)
    assert out == "closed\nclosed\n"
    assert "KeyboardInterrupt" in error
    assert process.returncode != 0


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder, tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text('{"vocab_size": 300}', encoding="utf-8")
    with pytest.raises(UserError, match="more tokens than the model") as caught:
        _check_vocabulary(tmp_path / "model")
    assert "300 embeddings" in str(caught.value)
    (tmp_path / "model" / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="not JSON"):
        _check_vocabulary(tmp_path / "model")
