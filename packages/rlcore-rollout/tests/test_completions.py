"""Completions that a reward requests besides those of its trajectory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from image_files import picture
from rlcore.episodes.context import EpisodeContext
from rlcore.errors import ContextFullError, EngineError
from rlcore.images import ImageProcessor
from rlcore.models.weights import FolderWeights
from rlcore.session.session import RunSession
from rlcore.types import (
    Boundary,
    ChatCompletion,
    ImagePart,
    Message,
    Observation,
    RewardResult,
    RolloutRequest,
    Sampling,
    Step,
    Task,
    TextPart,
    Trajectory,
)
from rlcore_rollout.chat.plain import PlainFormat
from rlcore_rollout.completions import Completions
from rlcore_rollout.engines.scripted import ScriptedEngine, ScriptedEngineConfig
from rlcore_rollout.images import ImagePool
from rlcore_rollout.model_client import TokenClient
from rlcore_rollout.sampler.local import LocalSampler
from scripted_episodes import Recording

HERE = __file__
CAT = picture(3 * 28, 28)
QUESTION = Message(role="user", content="and then?")


class Once:
    def reset(self, task: Task, *, seed: int) -> Observation:
        return Observation(messages=task.messages)

    def step(self, action: Message) -> Step:
        return Step(terminated=True)

    def close(self) -> None: ...


class Tasks:
    def tasks(self, split: str) -> Sequence[Task]:
        return [Task(id=f"t{n}", messages=(Message(role="user", content=f"guess {n}"),)) for n in range(4)]


def seeded(prompt_ids: Sequence[int], sampling: Sampling) -> str:
    return str(random.Random(f"{sampling.seed} {len(prompt_ids)} {sampling.temperature}").random())


class Asks:
    """Asks what comes next, ``count`` times."""

    count: ClassVar[int] = 2
    sampling: ClassVar[dict[str, Any]] = {}

    async def __call__(self, trajectory: Trajectory, task: Task, context: EpisodeContext) -> RewardResult:
        asked = Message(role="user", content=f"after {trajectory.final_response}?")
        answers = await context.complete((asked,), count=self.count, sampling=self.sampling)
        numbers = {f"answer {index}": float(answer.message.text) for index, answer in enumerate(answers)}
        return RewardResult(value=sum(numbers.values()) / len(numbers), components=numbers)


class AsksNever(Asks):
    async def __call__(self, trajectory: Trajectory, task: Task, context: EpisodeContext) -> RewardResult:
        return RewardResult(value=0.0)


class AsksTooMuch(Asks):
    async def __call__(self, trajectory: Trajectory, task: Task, context: EpisodeContext) -> RewardResult:
        await context.complete((Message(role="user", content="9" * 5000),))
        raise AssertionError("it is answered")


class AsksGreedily(Asks):
    sampling: ClassVar[dict[str, Any]] = {"temperature": 0.0, "seed": 1}


Collect = Callable[..., list[Trajectory]]


@pytest.fixture
def collect(make_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Collect]:
    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", "trainer")
    folder, opened = make_folder(), []

    def collected(reward: str = "Asks", *, step: int = 1, **rollout: Any) -> list[Trajectory]:
        values = {
            "model": {"path": str(folder), "chat_format": "plain"},
            "environment": {"id": f"{HERE}:Once"},
            "data": {"id": f"{HERE}:Tasks"},
            "reward": [{"id": f"{HERE}:{reward}"}],
            "rollout": {
                "engine": "scripted",
                "scripted": {"function": f"{HERE}:seeded"},
                "max_context_tokens": 500,
                **rollout,
            },
        }
        run = RunSession.create(values, purpose="evaluation")
        opened.append(LocalSampler(run, FolderWeights(folder=folder), run))
        request = RolloutRequest(tasks=Tasks().tasks("train"), group_size=2, seed=5, step=step)
        return [one for group in opened[-1].collect(request) for one in group.trajectories]

    yield collected
    for sampler in opened:
        sampler.close()


def test_reward_can_ask_the_model(collect: Collect) -> None:
    found = collect()
    assert all(one.reward is not None and 0 < one.reward < 1 for one in found)
    answers = {value for one in found for value in one.rewards[f"{HERE}:Asks"].components.values()}
    assert len(answers) == 2 * len(found), "each completion has a seed of its own"


def test_further_completions_are_not_part_of_the_trajectory(collect: Collect) -> None:
    for one, alone in zip(collect(), collect("AsksNever"), strict=True):
        assert one.segments == alone.segments
        assert one.metrics["completions"] == 2
        assert one.metrics["completed_tokens"] > 2
        assert "completions" not in alone.metrics


def test_further_completions_depend_on_step_but_not_on_timing(collect: Collect) -> None:
    first = [one.reward for one in collect()]
    assert [one.reward for one in collect(concurrency=1)] == first
    assert set(first).isdisjoint(one.reward for one in collect(step=2))


def test_sampling_of_further_completions_can_be_overridden(collect: Collect) -> None:
    components = [one.rewards[f"{HERE}:AsksGreedily"].components for one in collect("AsksGreedily")]
    assert all(each["answer 0"] == each["answer 1"] for each in components)


def test_failed_completion_is_not_scored(collect: Collect) -> None:
    failures = [one.failure for one in collect("AsksTooMuch")]
    assert all(one is not None and one.boundary is Boundary.REWARD for one in failures)
    assert "no room for a completion" in str(failures[0])


def client(folder: Path, **limits: Any) -> TokenClient:
    engine = Recording(ScriptedEngine(ScriptedEngineConfig(replies=("fine",)), FolderWeights(folder=folder)))
    images = ImageProcessor(min_pixels=28 * 28, max_pixels=28 * 28 * 16)
    return TokenClient(
        engine=engine, chat_format=PlainFormat(folder, images=images), **{"max_context_tokens": 500, **limits}
    )  # type: ignore[arg-type]


async def completed(model_client: TokenClient, *messages: Message, **arguments: Any) -> Sequence[ChatCompletion]:
    complete = Completions(
        model_client=model_client,
        sampling=Sampling(max_new_tokens=64, stop_token_ids=model_client.chat_format.stop_token_ids),
        session="s",
        images=ImagePool(model_client.fit),
        slots=asyncio.Semaphore(2),
        timeout_s=5.0,
    )
    return await complete(messages, **arguments)


def test_images_of_a_request_reach_the_engine(tiny_folder: Path) -> None:
    model_client = client(tiny_folder)
    shown = Message(role="user", content=(ImagePart.of(CAT), TextPart(text="which animal?")))
    (answer,) = asyncio.run(completed(model_client, shown, images=[CAT]))
    assert (answer.message.text, answer.finish_reason) == ("fine", "stop")
    (prompt,) = model_client.engine.prompts  # type: ignore[attr-defined]
    assert [span.sha256 for span in prompt.media] == [ImagePart.of(CAT).sha256]
    with pytest.raises(EngineError, match="not provided"):
        asyncio.run(completed(model_client, shown))


def test_every_session_is_released(tiny_folder: Path) -> None:
    model_client = client(tiny_folder)
    asyncio.run(completed(model_client, QUESTION, count=3))
    with pytest.raises(ContextFullError):
        asyncio.run(completed(client(tiny_folder, max_context_tokens=4), QUESTION))
    engine: Any = model_client.engine
    assert sorted(engine.sessions) == sorted(engine.released)
    assert len(set(engine.sessions)) == 3


@pytest.mark.parametrize("count", [0, -1, True, 1.5])
def test_number_of_completions_must_be_a_positive_integer(tiny_folder: Path, count: Any) -> None:
    with pytest.raises(ValueError, match="positive integer"):
        asyncio.run(completed(client(tiny_folder), QUESTION, count=count))


def test_context_without_a_model_says_so() -> None:
    with pytest.raises(EngineError, match="model of a run"):
        asyncio.run(EpisodeContext(Task(id="t", messages=())).complete((QUESTION,)))
