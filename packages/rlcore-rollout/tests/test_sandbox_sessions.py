"""The sandbox of a run: one object for a process, one session for an episode, closed in every case."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel
from rlcore.episodes.context import EpisodeContext
from rlcore.errors import SandboxFailure, UserError
from rlcore.models.weights import FolderWeights
from rlcore.plugins.loading import load_attribute
from rlcore.session.session import RunSession
from rlcore.types import (
    Boundary,
    CodeResult,
    Group,
    Message,
    Observation,
    RolloutRequest,
    SandboxLimits,
    Step,
    Task,
    Trajectory,
)
from rlcore_rollout.sampler.local import LocalSampler

HERE = __file__


class Interpreter:
    """Runs cells in this process. Only for the code of these tests."""

    def __init__(self, images: Sequence[bytes]) -> None:
        self.names: dict[str, Any] = {"images": len(images)}
        self.closed = 0

    async def run(self, code: str) -> CodeResult:
        await asyncio.sleep(0)
        if code == "break the sandbox":
            raise SandboxFailure("the container is gone")
        if code == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, self.names)
        return CodeResult(status="ok", stdout=out.getvalue())

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


class Interpreters:
    """Remembers its sessions."""

    made: ClassVar[list[Interpreters]] = []

    def __init__(self, config: None, limits: SandboxLimits) -> None:
        self.limits = limits
        self.sessions: list[Interpreter] = []
        self.closed = 0
        Interpreters.made.append(self)

    async def open(self, images: Sequence[bytes]) -> Interpreter:
        await asyncio.sleep(0)
        self.sessions.append(Interpreter(images))
        return self.sessions[-1]

    async def close(self) -> None:
        self.closed += 1
        for session in self.sessions:
            await session.close()


class NeverStarts(Interpreters):
    async def open(self, images: Sequence[bytes]) -> Interpreter:
        raise OSError("no space left")


class Config(BaseModel):
    cells: list[str] = ["x = 20", "print(x + images)"]


class Cells:
    """Runs one cell of its configuration in each turn."""

    Config = Config
    runs_code = True

    def __init__(self, config: Config) -> None:
        self.cells = list(config.cells)

    async def reset(self, task: Task, *, seed: int, context: EpisodeContext) -> Observation:
        self.context = context
        return Observation(messages=task.messages)

    async def step(self, action: Message) -> Step:
        if not self.cells:
            return Step(terminated=True)
        session = await self.context.sandbox()
        result = await session.run(self.cells.pop(0))
        return Step(observation=Observation(messages=(Message(role="tool", content=result.stdout),)))

    async def close(self) -> None: ...


class Undeclared(Cells):
    runs_code = False


class Tasks:
    def tasks(self, split: str) -> Sequence[Task]:
        return [Task(id=f"t{n}", messages=(Message(role="user", content=f"guess {n}"),)) for n in range(2)]


async def remembers(trajectory: Trajectory, task: Task, context: EpisodeContext) -> float:
    """Reads what the cells of the episode have left."""
    session = await context.sandbox()
    return float((await session.run("print(x)")).stdout == "20\n")


Collect = Callable[..., list[Trajectory]]


@pytest.fixture
def interpreters() -> list[Interpreters]:
    """All sandboxes that the run has created, of the class as the run imports it."""
    found: list[Interpreters] = load_attribute(f"{HERE}:Interpreters").made
    found.clear()
    return found


@pytest.fixture
def open_sampler(
    make_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, interpreters: list[Interpreters]
) -> Iterator[Callable[..., LocalSampler]]:
    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", "trainer")
    folder, opened = make_folder(), []

    def open_(
        *cells: str, environment: str = "Cells", sandbox: Any = f"{HERE}:Interpreters", **rollout: Any
    ) -> LocalSampler:
        values = {
            "model": {"path": str(folder), "chat_format": "plain"},
            "environment": {"id": f"{HERE}:{environment}", **({"cells": list(cells)} if cells else {})},
            "data": {"id": f"{HERE}:Tasks"},
            "reward": [{"id": f"{HERE}:remembers"}],
            "rollout": {"engine": "scripted", "scripted": {"replies": ["go"] * 4}, **rollout},
            "sandbox": sandbox if isinstance(sandbox, dict) else {"id": sandbox, "cell_s": 3.0},
        }
        run = RunSession.create(values, purpose="evaluation")
        opened.append(LocalSampler(run, FolderWeights(folder=folder), run))
        return opened[-1]

    yield open_
    for sampler in opened:
        sampler.close()


def collected(sampler: LocalSampler) -> list[Trajectory]:
    request = RolloutRequest(tasks=Tasks().tasks("train"), group_size=2, seed=5, step=1)
    groups: Sequence[Group] = sampler.collect(request)
    return [trajectory for group in groups for trajectory in group.trajectories]


def test_environment_and_reward_of_an_episode_share_one_session(
    open_sampler: Callable[..., LocalSampler], interpreters: list[Interpreters]
) -> None:
    sampler = open_sampler()
    assert interpreters == [], "nothing is started before the first use"
    trajectories = collected(sampler) + collected(sampler)
    assert [trajectory.reward for trajectory in trajectories] == [1.0] * 8
    assert all("20\n" in [message.text for message in trajectory.messages] for trajectory in trajectories)
    (sandbox,) = interpreters
    assert sandbox.limits.cell_s == 3.0
    assert [session.closed for session in sandbox.sessions] == [1] * 8
    sampler.close()
    sampler.close()
    assert sandbox.closed == 1


@pytest.mark.parametrize("cells", [("x = 20", "1 / 0"), ("x = 20", "raise SystemExit"), ("import time; time",)])
def test_sessions_are_closed_after_failures_of_the_environment(
    open_sampler: Callable[..., LocalSampler], interpreters: list[Interpreters], cells: tuple[str, ...]
) -> None:
    collected(open_sampler(*cells))
    assert [session.closed for session in interpreters[0].sessions] == [1] * 4


def test_a_failing_sandbox_is_a_boundary_of_its_own_and_not_scored(
    open_sampler: Callable[..., LocalSampler], capsys: pytest.CaptureFixture[str], interpreters: list[Interpreters]
) -> None:
    trajectories = collected(open_sampler("break the sandbox"))
    assert {one.failure.boundary for one in trajectories if one.failure} == {Boundary.SANDBOX}
    assert [trajectory.reward for trajectory in trajectories] == [None] * 4
    assert "4 sandbox (first: " in "".join(capsys.readouterr()).replace("\n", " ")
    assert [session.closed for session in interpreters[0].sessions] == [1] * 4


def test_a_sandbox_that_does_not_start_fails_its_trajectories(open_sampler: Callable[..., LocalSampler]) -> None:
    trajectories = collected(open_sampler(sandbox=f"{HERE}:NeverStarts"))
    assert {one.failure.boundary for one in trajectories if one.failure} == {Boundary.SANDBOX}
    assert "no space left" in str(trajectories[0].failure)


def test_an_interruption_closes_all_sessions(
    open_sampler: Callable[..., LocalSampler], interpreters: list[Interpreters]
) -> None:
    sampler = open_sampler("x = 1", "interrupt")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores the signal
    try:
        with pytest.raises(KeyboardInterrupt):
            collected(sampler)
    finally:
        signal.signal(signal.SIGINT, before)
    sampler.close()
    assert all(session.closed for session in interpreters[0].sessions)
    assert interpreters[0].closed == 1


def test_the_sandbox_is_printed_at_the_start_of_a_run_that_declares_it(
    open_sampler: Callable[..., LocalSampler], capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"sandbox   {HERE}:Interpreters: no guarantees"
    open_sampler()
    assert line in "".join(capsys.readouterr()).replace("\n", "")


def test_a_sandbox_that_cannot_be_used_is_refused_at_the_start(open_sampler: Callable[..., LocalSampler]) -> None:
    with pytest.raises(UserError, match="NoSuch"):
        open_sampler(sandbox=f"{HERE}:NoSuch")
