"""Whatever an environment returns or raises ends its own episode, with a failure that names it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hostile_answers import ACTS, VALUES
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rlcore.cli.interrupts import interrupts_handled
from rlcore.episodes.threads import MOST_ABANDONED
from rlcore.session.session import RunSession
from rlcore.types import Boundary, Message, Observation, RolloutRequest, Step, Task
from rlcore_rollout.sampler.local import LocalSampler

if TYPE_CHECKING:
    from pathlib import Path

HERE = __file__
GOOD = Observation(messages=(Message(role="user", content="how many?"),))


class Hostile:
    """Behaves for tasks whose id starts with ``good``."""

    acts: dict[str, Callable[[], Any]] = {}
    blocking = False

    def __init__(self) -> None:
        self.act("make")

    def act(self, name: str, good: Any = None) -> Any:
        return self.acts[name]() if name in self.acts and not getattr(self, "well", False) else good

    async def reset(self, task: Task, *, seed: int) -> Any:
        self.well = task.id.startswith("good")
        return self.act("reset", GOOD)

    async def step(self, action: Message) -> Any:
        return self.act("step", Step(terminated=True))

    async def close(self) -> Any:
        return self.act("close")


class Tasks:
    def tasks(self, split: str) -> list[Task]:
        return [Task(id=name, messages=GOOD.messages) for name in ("good-1", "bad", "good-2")]


def one(trajectory: Any, task: Any) -> float:
    return 1.0


@pytest.fixture(scope="module")
def sampler(tiny_folder: Path) -> Iterator[LocalSampler]:
    run = RunSession.create(
        {
            "model": {"path": str(tiny_folder), "chat_format": "plain"},
            "environment": {"id": f"{HERE}:Hostile"},
            "data": {"id": f"{HERE}:Tasks"},
            "reward": [{"id": f"{HERE}:one"}],
            "rollout": {"engine": "scripted", "scripted": {"replies": ["one"]}, "max_new_tokens": 4},
        },
        purpose="evaluation",
    )
    from rlcore.models.weights import FolderWeights

    with interrupts_handled():
        made = LocalSampler(run, FolderWeights(folder=tiny_folder), run)
        yield made
        made.close()


VALUE = st.sampled_from((*VALUES, lambda: ()))
STEPS = st.builds(
    lambda observation, reward, terminated, stop, info: (
        lambda: Step(observation=observation(), reward=reward(), terminated=terminated(), stop=stop(), info=info())
    ),
    *[VALUE] * 5,
)
OBSERVATIONS = st.builds(
    lambda messages, tools, images, context: (
        lambda: Observation(messages=messages(), tools=tools(), images=images(), context=context())
    ),
    *[VALUE] * 4,
)
MESSAGES = st.builds(
    lambda role, content, calls, name: (
        lambda: Observation(messages=(Message(role=role(), content=content(), tool_calls=calls(), name=name()),))
    ),
    *[VALUE] * 4,
)


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    act=st.one_of(ACTS, STEPS, OBSERVATIONS, MESSAGES, OBSERVATIONS.map(lambda act: lambda: Step(observation=act()))),
    place=st.sampled_from(["reset", "step", "close"]),
)
@example(act=lambda: Step(info={"x": 10**400, 5: 1}, terminated=True), place="step")  # type: ignore[dict-item]
def test_every_answer_of_an_environment_concerns_only_its_episode(
    act: Callable[[], Any], place: str, sampler: LocalSampler
) -> None:
    Hostile.acts = {place: act}
    try:
        groups = sampler.collect(RolloutRequest(tasks=Tasks().tasks("train"), group_size=1, seed=0, step=1))
    finally:
        Hostile.acts = {}
    first, bad, last = (group.trajectories[0] for group in groups)
    assert first.reward == last.reward == 1.0
    if bad.failure is not None:
        assert bad.reward is None
        assert bad.failure.boundary is Boundary.ENVIRONMENT
        assert f"environment '{HERE}:Hostile'" in bad.failure.message
    assert all(isinstance(name, str) and type(value) is float for name, value in bad.metrics.items())


def test_environment_that_hangs_in_threads_takes_a_limited_number(sampler: LocalSampler) -> None:
    import asyncio

    released = threading.Event()

    class Hangs(Hostile):
        async def step(self, action: Message) -> Step:
            await asyncio.wait_for(asyncio.to_thread(released.wait, 60), 0.01)
            return Step(terminated=True)

    (stage,) = sampler._stages.values()
    loop = stage.agent_loop
    object.__setattr__(loop, "make_environment", Hangs)
    before = threading.active_count()
    try:
        for number in range(4):
            tasks = [Task(id=f"good-{number}-{n}", messages=GOOD.messages) for n in range(MOST_ABANDONED)]
            groups = sampler.collect(RolloutRequest(tasks=tasks, group_size=1, seed=0, step=1))
        failures = [group.trajectories[0].failure for group in groups]
        assert all(failure is not None and "earlier calls" in failure.message for failure in failures)
        assert threading.active_count() - before <= 2 * MOST_ABANDONED
    finally:
        released.set()
