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
from concurrent.futures import CancelledError, as_completed
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, ConfigDict
from rlcore.episodes.context import EpisodeContext
from rlcore.errors import EngineError, PluginError, UserError
from rlcore.images import image_size
from rlcore.models.weights import FolderWeights
from rlcore.plugins.loading import load_attribute
from rlcore.session.session import RunSession
from rlcore.types import (
    Boundary,
    Group,
    ImagePart,
    Message,
    Observation,
    RolloutRequest,
    Sampling,
    Step,
    Stop,
    Task,
    Trajectory,
)
from rlcore_rollout.sampler.engine_client import _check_vocabulary
from rlcore_rollout.sampler.local import LocalSampler

HERE = __file__


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")
    mode: str = "fine"


class Guess:
    """Two turns, then the end. ``mode`` selects a failure. Odd tasks take longer than even ones."""

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


SAMPLINGS: list[Sampling] = []


def remembered(prompt_ids: Sequence[int], sampling: Sampling) -> str:
    SAMPLINGS.append(sampling)
    return "remembered"


def dead(prompt_ids: Sequence[int], sampling: Sampling) -> str:
    raise ConnectionError("the GPU fell off the bus")


def half_dead(prompt_ids: Sequence[int], sampling: Sampling) -> str:
    return "fine" if sampling.seed % 2 else dead(prompt_ids, sampling)


Open = Callable[..., LocalSampler]


@pytest.fixture(autouse=True)
def without_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where this package is installed alone; this saves the import of torch."""
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
def open_sampler(folder: Path, environment: type[Guess]) -> Iterator[Open]:
    opened: list[LocalSampler] = []

    def open_(
        mode: str = "fine",
        *,
        environment: str = "Guess",
        reward: str = "right",
        function: str = "seeded",
        model: Any = None,
        **rollout: Any,
    ) -> LocalSampler:
        values = {
            "model": {"path": str(folder), "chat_format": "plain", **(model or {})},
            "environment": {"id": f"{HERE}:{environment}", "mode": mode},
            "data": {"id": f"{HERE}:Tasks"},
            "reward": [{"id": f"{HERE}:{reward}"}],
            "rollout": {"engine": "scripted", "scripted": {"function": f"{HERE}:{function}"}, **rollout},
        }
        run = RunSession.create(values, purpose="evaluation")
        opened.append(LocalSampler(run, FolderWeights(folder=folder), run))
        return opened[-1]

    yield open_
    for sampler in opened:
        sampler.close()


def request(count: int = 6, group_size: int = 3, **changes: Any) -> RolloutRequest:
    fields: dict[str, Any] = {"tasks": Tasks().tasks("train")[:count], "group_size": group_size, "seed": 5, "step": 1}
    return RolloutRequest(**{**fields, **changes})


def test_groups_are_in_task_order(open_sampler: Open) -> None:
    groups = open_sampler().collect(request())
    assert [group.task.id for group in groups] == [f"t{n}" for n in range(6)]
    for group in groups:
        assert [trajectory.sibling for trajectory in group.trajectories] == [0, 1, 2]
        assert {trajectory.task_id for trajectory in group.trajectories} == {group.task.id}
        assert group.rewards_G == (1.0, 1.0, 1.0)
        assert all(trajectory.stop is Stop.DONE for trajectory in group.trajectories)


def test_same_request_gives_the_same_trajectories(open_sampler: Open) -> None:
    sampler = open_sampler()
    first = sampler.collect(request())
    assert sampler.collect(request()) == first
    assert open_sampler(concurrency=2).collect(request()) == first


def test_submitted_groups_end_alone_and_equal_those_of_a_request(open_sampler: Open) -> None:
    wanted = request()
    sampler = open_sampler()
    groups = [sampler.submit(task, wanted, place=place) for place, task in enumerate(wanted.tasks)]
    first = next(as_completed(groups)).result()
    assert first.task.id in {"t0", "t2", "t4"}  # the short ones, while the others are still sampled
    assert [group.result() for group in groups] == list(open_sampler().collect(wanted))


def test_groups_are_reported_as_they_end_with_their_times(
    open_sampler: Open, environment: type[Guess], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[tuple[str, Group, int]] = []

    def finished(run: RunSession, purpose: str, group: Group) -> None:
        ended.append((purpose, group, environment.alive))

    monkeypatch.setattr(RunSession, "group_finished", finished)
    groups = open_sampler().collect(request())
    assert {purpose for purpose, _, _ in ended} == {"train"}
    assert sorted(group.task.id for _, group, _ in ended) == [group.task.id for group in groups]
    assert ended[0][2] > 0, "other episodes were still running"
    assert ended[0][1].task.id in {"t0", "t2", "t4"}
    for group in groups:
        assert any(group is one for _, one, _ in ended)
        for one in group.trajectories:
            assert [time.kind for time in one.times if time.kind in ("queue", "turn", "step", "reward")] == [
                *("queue", "turn", "step", "turn", "step", "reward")
            ]
            slow = 0.02 if int(one.task_id[1:]) % 2 else 0.002
            assert all(time.seconds >= slow for time in one.times if time.kind == "step")
            assert next(time.name for time in one.times if time.kind == "reward").endswith(":right")
            assert one.sampling is not None
            assert one.sampling.temperature == 1.0
    seeds = {one.sampling.seed for group in groups for one in group.trajectories if one.sampling is not None}
    assert len(seeds) == 18


def test_closing_cancels_submitted_groups(open_sampler: Open, environment: type[Guess]) -> None:
    sampler = open_sampler("hang")
    group = sampler.submit(request().tasks[0], request(), place=0)
    while not environment.alive:
        time.sleep(0.01)
    sampler.close()
    assert isinstance(group.exception(), CancelledError)
    assert environment.alive == 0 < environment.closed


def test_sampler_works_inside_a_running_event_loop(open_sampler: Open) -> None:
    outside = open_sampler().collect(request())

    async def cell() -> Sequence[Group]:  # as in Jupyter
        sampler = open_sampler()
        try:
            return sampler.collect(request())
        finally:
            sampler.close()

    assert asyncio.run(cell()) == outside


def test_siblings_share_the_environment_seed_but_not_samples(open_sampler: Open, environment: type[Guess]) -> None:
    sampler = open_sampler()
    groups = sampler.collect(request())
    assert all(len(seeds) == 1 for seeds in environment.seeds.values())
    assert len({seed for seeds in environment.seeds.values() for seed in seeds}) == 6
    sampled = {trajectory.final_response for group in groups for trajectory in group.trajectories}
    assert len(sampled) == 18
    other = sampler.collect(request(purpose="evaluation"))
    assert all(len(seeds) == 1 for seeds in environment.seeds.values()), "an evaluation sees the same initial states"
    assert sampled.isdisjoint({trajectory.final_response for group in other for trajectory in group.trajectories})


def test_request_can_override_sampling(open_sampler: Open) -> None:
    sampler = open_sampler()
    warm = sampler.collect(request(1, 1))[0].trajectories[0].final_response
    cold = sampler.collect(request(1, 1, sampling={"temperature": 0.0}))[0].trajectories[0].final_response
    assert warm != cold


def test_concurrency_limit_is_respected(open_sampler: Open, environment: type[Guess]) -> None:
    open_sampler(concurrency=4).collect(request())
    assert environment.most_alive == 4
    assert (environment.alive, environment.closed) == (0, 18)


def test_failing_environment_does_not_affect_others(
    open_sampler: Open, environment: type[Guess], capsys: pytest.CaptureFixture[str]
) -> None:
    groups = open_sampler("broken-2").collect(request())
    assert [group.rewards_G for group in groups] == [(1.0,) * 3] * 2 + [(None,) * 3] + [(1.0,) * 3] * 3
    assert {t.failure.boundary for t in groups[2].trajectories if t.failure} == {Boundary.ENVIRONMENT}
    assert "RuntimeError: no such level" in str(groups[2].trajectories[0].failure)
    assert environment.closed == 18
    printed = "".join(capsys.readouterr()).replace("\n", " ")
    assert "3 of 18 trajectories were not scored" in printed


def test_dead_engine_is_an_error_and_failed_generation_is_data(open_sampler: Open) -> None:
    with pytest.raises(EngineError, match="the GPU fell off the bus"):
        open_sampler(function="dead").collect(request())
    groups = open_sampler(function="half_dead").collect(request())
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    assert {one.failure and one.failure.boundary for one in trajectories} == {None, Boundary.ENGINE}
    assert {one.stop for one in trajectories if one.failure is None} == {Stop.DONE}


def test_deadlines_come_from_the_rollout_table(open_sampler: Open, environment: type[Guess]) -> None:
    start = time.monotonic()
    groups = open_sampler("hang", environment_timeout_s=0.1).collect(request())
    assert time.monotonic() - start < 30, "not the minute that an environment hangs"
    failures = [trajectory.failure for group in groups for trajectory in group.trajectories]
    assert {failure and failure.boundary for failure in failures} == {Boundary.TIMEOUT}
    assert environment.alive == 0


def test_context_is_limited_by_the_run_and_by_the_model(open_sampler: Open, folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 70}), encoding="utf-8")
    for limit in (None, 1000):
        long = open_sampler(max_context_tokens=limit).collect(request(1, 1))[0].trajectories[0]
        assert long.stop is Stop.LENGTH
        assert len(long.segments[0]) <= 70
    short = open_sampler(max_context_tokens=30).collect(request(1, 1))[0].trajectories[0]
    assert len(short.segments[0]) <= 30


def test_chat_format_is_detected_or_configured(open_sampler: Open, folder: Path) -> None:
    with pytest.raises(PluginError, match="no chat format supports"):
        open_sampler(model={"chat_format": "auto"})
    path = folder / "tokenizer_config.json"
    names = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**names, "rlcore_chat_format": "plain"}), encoding="utf-8")
    automatic = open_sampler(model={"chat_format": "auto"}).chat_format
    assert type(automatic).__name__ == "PlainFormat"
    react = open_sampler(model={"tool_parser": "react"}).chat_format
    assert type(react.parser).__name__ == "ReactParser"


class Draws(Guess):
    """Keeps the context of each episode, and draws from it."""

    contexts: ClassVar[list[EpisodeContext]] = []
    drawn: ClassVar[list[float]] = []

    async def reset(self, task: Task, *, seed: int, context: EpisodeContext) -> Observation:  # type: ignore[override]
        Draws.contexts.append(context)
        Draws.drawn.append(context.random.random())
        (context.scratch / "note").write_text(f"{task.id} {context.sibling}", encoding="utf-8")
        return await super().reset(task, seed=seed)


def noted(trajectory: Trajectory, task: Task, context: EpisodeContext) -> float:
    return float((context.scratch / "note").read_text(encoding="utf-8") == f"{task.id} {trajectory.sibling}")


@pytest.fixture
def draws(environment: type[Guess]) -> type[Draws]:
    found: type[Draws] = load_attribute(f"{HERE}:Draws")
    found.contexts, found.drawn = [], []
    return found


def test_environment_and_reward_share_a_context_that_is_closed(open_sampler: Open, draws: type[Draws]) -> None:
    groups = open_sampler(environment="Draws", reward="noted", trajectory_timeout_s=30.0).collect(request(2, 3))
    assert [group.rewards_G for group in groups] == [(1.0, 1.0, 1.0)] * 2
    assert {(context.task.id, context.sibling) for context in draws.contexts} == {
        (f"t{task}", sibling) for task in range(2) for sibling in range(3)
    }
    assert len(set(draws.drawn)) == 6
    assert all(0 < context.remaining_s < 30 for context in draws.contexts)
    assert not any((context.scratch / "note").exists() for context in draws.contexts)
    for context in draws.contexts:
        context.close()


def test_random_numbers_of_a_context_depend_on_step_and_purpose(open_sampler: Open, draws: type[Draws]) -> None:
    sampler = open_sampler(environment="Draws", reward="noted", concurrency=1)
    for changes in ({}, {}, {"step": 2}, {"seed": 6}, {"purpose": "evaluation"}):
        sampler.collect(request(1, 1, **changes))
    first, again, *others = draws.drawn
    assert first == again
    assert len({first, *others}) == 4


@pytest.mark.parametrize("mode", ["broken-2", "hang"])
def test_context_is_closed_after_a_failure(open_sampler: Open, draws: type[Draws], mode: str) -> None:
    sampler = open_sampler(mode, environment="Draws", reward="noted", environment_timeout_s=0.1)
    sampler.collect(request(3, 1))
    assert len(draws.contexts) == 3
    assert not any((context.scratch / "note").exists() for context in draws.contexts)
    for context in draws.contexts:
        context.close()


class Pictures(Guess):
    """Shows an image that it makes for every episode."""

    async def reset(self, task: Task, *, seed: int) -> Observation:
        await super().reset(task, seed=seed)
        from image_files import picture

        data = picture(40, 30, f"rgb({task.id[1:]}, 0, 0)")
        return Observation(messages=(Message(role="user", content=(ImagePart.of(data),)),), images=(data,))


def test_siblings_share_the_bytes_of_equal_images(open_sampler: Open, environment: type[Guess], folder: Path) -> None:
    (folder / "preprocessor_config.json").write_text('{"min_pixels": 784, "max_pixels": 3136}')
    sampler = open_sampler(environment="Pictures")
    for group in sampler.collect(request(2, 3)):
        images = [next(iter(trajectory.images.values())) for trajectory in group.trajectories]
        assert image_size(images[0]) == (28, 28)
        assert len({id(image) for image in images}) == 1


def test_placeholders_of_images_are_not_sampled(open_sampler: Open, folder: Path) -> None:
    def suppressed() -> set[str]:
        sampler = open_sampler(function="remembered")
        samplings = load_attribute(f"{HERE}:SAMPLINGS")
        samplings.clear()
        sampler.collect(request(1, 1))
        vocabulary = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
        names = {token["id"]: token["content"] for token in vocabulary}
        return {names[token] for sampling in samplings for token in sampling.suppressed_token_ids}

    assert suppressed() == set(), "a text model"
    (folder / "preprocessor_config.json").write_text("{}")
    assert suppressed() == {"<|vision_start|>", "<|image_pad|>", "<|vision_end|>"}


def test_completions_carry_the_version_of_the_last_weights(open_sampler: Open, folder: Path) -> None:
    sampler = open_sampler()
    sampler.update_weights(FolderWeights(folder=folder, version=7))
    turns = sampler.collect(request(1, 1))[0].trajectories[0].turns
    assert {turn.policy_version for turn in turns if turn.kind == "policy"} == {7}


def test_group_rewards_receive_all_siblings(folder: Path, environment: type[Guess]) -> None:
    values = {
        "model": {"path": str(folder), "chat_format": "plain"},
        "environment": {"id": f"{HERE}:Guess"},
        "data": {"id": f"{HERE}:Tasks"},
        "reward": [{"id": f"{HERE}:right"}],
        "rollout": {"engine": "scripted", "scripted": {"replies": ["x"]}},
    }
    run = RunSession.create(values, purpose="evaluation")
    (single,) = run.rewards()
    group = type(single)(id="ranked", weight=2.0, scope="group", function=ranked(), minimum=0.0, maximum=1.0)
    run._rewards = {"": (single, group)}
    sampler = LocalSampler(run, FolderWeights(folder=folder), run)
    groups = sampler.collect(request())
    sampler.close()
    assert all(group.rewards_G == (1.0, 1.2, 1.4) for group in groups)


def test_close_releases_all_resources(folder: Path, open_sampler: Open) -> None:
    before = {thread.name for thread in threading.enumerate()}
    sampler = open_sampler()
    sampler.collect(request())
    sampler.close()
    left = {thread.name for thread in threading.enumerate()} - before
    assert all(name.startswith("rlcore") for name in left), "only the idle threads of the process"


HANGING = """
import signal, sys, threading
from pathlib import Path
from rlcore.session.session import RunSession
from rlcore.types import RolloutRequest, Observation, Step
from rlcore.models.weights import FolderWeights
from rlcore_rollout.sampler.local import LocalSampler

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
run = RunSession.create(values, purpose="evaluation")
sampler = LocalSampler(run, FolderWeights(folder=Path(folder)), run)
try:
    print("start", flush=True)
    sampler.collect(RolloutRequest(tasks=run.dataset.tasks("train")[:1], group_size=2, seed=0, step=0))
finally:
    sampler.close()
print("end", flush=True)
"""


def test_hung_thread_does_not_block_process_exit(folder: Path) -> None:
    command = [sys.executable, "-c", HANGING, HERE, str(folder), "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "end"


def test_interrupt_closes_the_environments(folder: Path) -> None:
    command = [sys.executable, "-c", HANGING, HERE, str(folder), "60"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)] == ["start\n", "step\n", "step\n"]
    os.kill(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=120)
    assert [line for line in out.splitlines() if not line.startswith("progress")] == ["closed", "closed"]
    assert "KeyboardInterrupt" in error
    assert process.returncode != 0


def test_tokenizer_with_more_tokens_than_the_model_is_rejected(tiny_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder, tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text('{"vocab_size": 300}', encoding="utf-8")
    with pytest.raises(UserError, match="more tokens than the model") as caught:
        _check_vocabulary(tmp_path / "model")
    assert "300 embeddings" in str(caught.value)
    (tmp_path / "model" / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="cannot be read"):
        _check_vocabulary(tmp_path / "model")
