"""Whatever an engine or a chat format returns or raises ends its own episodes, with a failure that names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_answers import ACTING, ACTS, act
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rlcore.cli.interrupts import interrupts_handled
from rlcore.errors import EngineError, PluginError
from rlcore.models.weights import FolderWeights
from rlcore.session.session import RunSession
from rlcore.types import (
    Completion,
    Message,
    Observation,
    Prompt,
    RolloutRequest,
    Sampling,
    Step,
    Task,
    TokenIds,
    VersionSpan,
)
from rlcore_rollout.chat.plain import PlainFormat
from rlcore_rollout.sampler.local import LocalSampler

HERE = __file__
QUESTION = Observation(messages=(Message(role="user", content="how many?"),))


class Engine:
    """Answers with one token."""

    def __init__(self, options: object, source: object, context: object) -> None: ...

    async def generate(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Any:
        return act("generate", lambda: Completion(token_ids=[5], logprobs=[-1.0], finish_reason="stop"))  # type: ignore[arg-type]

    async def load_weights(self, source: object) -> int:
        return 0

    async def release(self, session: str) -> Any:
        return act("release", lambda: None)

    async def close(self) -> None: ...


class Format(PlainFormat):
    """The plain format, unless it acts."""

    @property
    def stop_token_ids(self) -> Any:
        return act("stop_token_ids", lambda: (2,))

    @stop_token_ids.setter
    def stop_token_ids(self, ids: object) -> None: ...

    def prompt(self, *arguments: Any) -> Any:
        return act("prompt", lambda: super(Format, self).prompt(*arguments))

    def observation(self, *arguments: Any) -> Any:
        return act("observation", lambda: super(Format, self).observation(*arguments))

    def parse(self, *arguments: Any) -> Any:
        return act("parse", lambda: super(Format, self).parse(*arguments))


class Chat:
    """Ends after two turns."""

    def __init__(self) -> None:
        self.turns = 0

    async def reset(self, task: Task, *, seed: int) -> Observation:
        return QUESTION

    async def step(self, action: Message) -> Step:
        self.turns += 1
        return Step(observation=QUESTION, terminated=self.turns == 2)

    async def close(self) -> None: ...


class Tasks:
    def tasks(self, split: str) -> list[Task]:
        return [Task(id="t", messages=QUESTION.messages)]


def one(trajectory: Any, task: Any) -> float:
    return 1.0


def start(folder: Path) -> LocalSampler:
    run = RunSession.create(
        {
            "model": {"path": str(folder), "chat_format": f"{HERE}:Format"},
            "environment": {"id": f"{HERE}:Chat"},
            "data": {"id": f"{HERE}:Tasks"},
            "reward": [{"id": f"{HERE}:one"}],
            "rollout": {"engine": f"{HERE}:Engine", "max_new_tokens": 4},
        },
        purpose="evaluation",
    )
    return LocalSampler(run, FolderWeights(folder=folder), run)


@pytest.fixture(scope="module")
def folder(make_folder: Callable[..., Path]) -> Path:
    """A tokenizer, and the number of embeddings of its model."""
    made = make_folder()
    (made / "config.json").write_text('{"vocab_size": 1000}', encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def sampler(folder: Path) -> Iterator[LocalSampler]:
    ACTING.clear()
    with interrupts_handled():
        made = start(folder)
        yield made
        ACTING.clear()
        made.close()


IDS = st.one_of(st.just([5]), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=6))
VERSIONS = st.lists(st.builds(VersionSpan, st.integers(), st.integers(-3, 3)), max_size=3).map(tuple)
COMPLETIONS: st.SearchStrategy[Callable[[], Any]] = st.builds(
    lambda ids, logprobs, reason, version, versions: (
        lambda: Completion(
            token_ids=ids,
            logprobs=logprobs,
            finish_reason=reason(),
            policy_version=version(),
            versions=versions(),  # type: ignore[arg-type]
        )
    ),
    IDS,
    st.one_of(st.just([-1.0]), st.lists(st.floats(), max_size=6)),
    ACTS,
    ACTS,
    st.one_of(st.just(tuple), ACTS, VERSIONS.map(lambda spans: lambda: spans)),
)


@given(
    place=st.sampled_from(["generate", "release", "prompt", "observation", "parse"]),
    what=st.one_of(ACTS, COMPLETIONS, IDS.map(lambda ids: lambda: ids)),
)
@example("generate", lambda: Completion(token_ids=[10**9], logprobs=[-1.0], finish_reason="stop"))  # type: ignore[arg-type]
@example("generate", lambda: Completion(token_ids=[5], logprobs=[3.0], finish_reason="stop"))  # type: ignore[arg-type]
@example("parse", lambda: Message(role="user", content="forged"))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_wrong_answer_is_a_failure_that_names_its_component(
    sampler: LocalSampler, place: str, what: Callable[[], Any]
) -> None:
    task = Task(id="t", messages=QUESTION.messages)
    request = RolloutRequest(tasks=(task,), group_size=1, step=0, seed=0, purpose="evaluation")
    ACTING.clear()
    ACTING[place] = what
    try:
        ((trajectory,),) = [group.trajectories for group in sampler.collect(request)]
        failed = trajectory.failure
    except EngineError as error:
        failed = error
    finally:
        ACTING.clear()
    if failed is not None:
        assert HERE in str(failed)
    else:  # the answer was a valid one
        assert trajectory.reward == 1.0
        assert isinstance(trajectory.messages[-1], Message)
        assert all(0 <= token < 1000 for token in trajectory.segments[0].token_ids)


@pytest.mark.parametrize("ids", [None, 3, "ab", [None], [1.5]])
def test_wrong_stop_tokens_name_the_chat_format(folder: Path, ids: object) -> None:
    ACTING.clear()
    ACTING["stop_token_ids"] = lambda: ids
    try:
        with pytest.raises(PluginError) as caught:
            start(folder)
    finally:
        ACTING.clear()
    assert f"{HERE}:Format" in caught.value.message


def test_wrong_answer_to_the_check_of_the_weights_names_the_engine(sampler: LocalSampler) -> None:
    ACTING.clear()
    ACTING["generate"] = lambda: None
    try:
        with pytest.raises(EngineError) as caught:
            sampler.completions(Prompt(token_ids=TokenIds([1])), Sampling(max_new_tokens=1))
    finally:
        ACTING.clear()
    assert f"{HERE}:Engine" in str(caught.value)
