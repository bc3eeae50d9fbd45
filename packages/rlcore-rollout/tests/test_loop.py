"""The agent loop: one trajectory with a scripted engine, and every way in which it can end."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from rlcore.errors import EnvironmentFailure, ToolFailure
from rlcore.types import (
    Boundary,
    Completion,
    Failure,
    Logprobs,
    Message,
    Observation,
    Prompt,
    Sampling,
    Step,
    Stop,
    Task,
    TokenIds,
    Trajectory,
)
from scripted_episodes import TASK, Chat, Play


def failure_of(trajectory: Trajectory) -> Failure:
    """The failure of a trajectory that has one and was cancelled by it."""
    assert trajectory.stop is Stop.CANCELLED
    assert trajectory.failure is not None
    assert not trajectory.scorable
    return trajectory.failure


def test_trajectory_contains_exactly_the_tokens_of_the_engine(play: Play) -> None:
    trajectory = play()
    assert (trajectory.stop, trajectory.failure) == (Stop.DONE, None)
    assert (trajectory.task_id, trajectory.sibling) == ("t", 3)
    (segment,) = trajectory.segments
    for prompt in play.engine.prompts:
        assert segment.token_ids[: len(prompt)] == prompt.token_ids
    sampled = [index for index, mask in enumerate(segment.loss_mask) if mask]
    expected = [
        position
        for prompt, completion in zip(play.engine.prompts, play.engine.completions, strict=True)
        for position in range(len(prompt), len(prompt) + len(completion.token_ids))
    ]
    assert sampled == expected
    assert [segment.token_ids[i] for i in sampled] == [t for c in play.engine.completions for t in c.token_ids]
    assert segment.prompt_length == len(play.engine.prompts[0])
    assert play.chat.decode(segment.token_ids).startswith("<|im_start|>user\nhow many?<|im_end|>\n")


def test_turns_tile_the_tokens_and_messages_are_the_conversation(play: Play) -> None:
    trajectory = play()
    ends = [turn.end for turn in trajectory.turns]
    assert [turn.start for turn in trajectory.turns] == [0, *ends[:-1]]
    assert ends[-1] == len(trajectory.segments[0])
    kinds = ["observation", "policy"] * 3 + ["observation"]
    assert [turn.kind for turn in trajectory.turns] == kinds
    assert trajectory.turns[-1].start == trajectory.turns[-1].end, "the model did not see it"
    texts = ["how many?", "one", "result 1", "two", "result 2", "three", "result 3"]
    assert [message.text for message in trajectory.messages] == texts
    assert trajectory.final_response == "three"


def test_step_rewards_keep_their_turns_and_info_is_summed(play: Play) -> None:
    trajectory = play()
    assert [turn.reward for turn in trajectory.turns if turn.kind == "policy"] == [0.25] * 3
    assert trajectory.metrics == {"turns": 3.0, "step_reward": 0.75, "calls": 6.0, "good": 3.0}
    assert trajectory.reward is None


def test_environment_and_session_are_freed_exactly_once(play: Play) -> None:
    play()
    assert [environment.closed for environment in play.environments] == [1]
    assert play.engine.released == ["s"]
    assert play.environments[0].seed == 11


def test_truncated_generation_ends_as_length_and_is_not_parsed(play: Play) -> None:
    replies = ['<tool_call>{"name": "x", "arguments": {}}</tool_call>' * 9]
    trajectory = play(replies=replies, sampling=Sampling(max_new_tokens=60))
    assert trajectory.stop is Stop.LENGTH
    assert trajectory.scorable
    assert trajectory.messages[-1].role == "assistant"
    assert trajectory.messages[-1].tool_calls == ()
    assert trajectory.turns[-1].finish_reason == "length"
    assert trajectory.sampled_tokens == 60
    assert play.environments[0].actions == []
    assert play.environments[0].closed == 1


def test_prompt_that_fills_the_context_ends_as_length(play: Play) -> None:
    trajectory = play(max_context_tokens=10)
    assert trajectory.stop is Stop.LENGTH
    assert play.engine.prompts == []
    assert [len(segment) for segment in trajectory.segments] == [0]
    assert trajectory.messages == TASK.messages


@pytest.mark.parametrize(("max_new_tokens", "length"), [(60, 1), (10_000, 5000)])
def test_an_environment_may_score_an_episode_that_was_cut(play: Play, max_new_tokens: int, length: int) -> None:
    given: list[Message | None] = []

    class Scoring(Chat):
        async def step(self, action: Message) -> Step:
            return Step(observation=Observation(messages=(Message(role="tool", content="9" * length),)))

        async def cut(self, written: Message | None) -> Step:
            given.append(written)
            return Step(truncated=True, reward=-0.5)

    trajectory = play(Scoring, replies=["x" * 99], sampling=Sampling(max_new_tokens=max_new_tokens))
    assert (trajectory.stop, trajectory.turn_reward) == (Stop.LENGTH, -0.5)
    assert [turn.reward for turn in trajectory.turns if turn.kind == "policy"] == [-0.5]
    assert [written and written.text for written in given] == ["x" * 60 if length == 1 else None]


@pytest.mark.parametrize("spare", [0, 1, 5])
def test_generation_is_limited_to_the_remaining_context(play: Play, spare: int) -> None:
    length = len(play.chat.prompt(TASK.messages))
    trajectory = play(replies=["a long answer"], max_context_tokens=length + spare)
    assert trajectory.stop is Stop.LENGTH
    assert trajectory.sampled_tokens == spare
    assert len(trajectory.segments[0]) == (length + spare if spare else 0)


def test_observation_that_fills_the_context_is_kept_without_tokens(play: Play) -> None:
    class Verbose(Chat):
        async def step(self, action: Message) -> Step:
            return Step(observation=Observation(messages=(Message(role="tool", content="9" * 5000),)))

    trajectory = play(Verbose)
    assert trajectory.stop is Stop.LENGTH
    assert len(trajectory.segments[0]) < 100
    assert len(trajectory.messages[-1].text) == 5000


def test_last_step_sets_the_stop_reason(play: Play) -> None:
    class Truncating(Chat):
        async def step(self, action: Message) -> Step:
            return Step(truncated=True)

    class GivingUp(Chat):
        async def step(self, action: Message) -> Step:
            return Step(truncated=True, stop=Stop.TOOL_ERRORS)

    assert play(Truncating).stop is Stop.MAX_TURNS
    assert play(GivingUp).stop is Stop.TOOL_ERRORS


def boom(*arguments: object, **keywords: object) -> Any:
    raise ValueError("the simulator fell over")


def bad_reward(self: Chat, action: Message) -> Step:
    return Step(reward=float("nan"), terminated=True)


def huge_reward(self: Chat, action: Message) -> Step:
    return Step(reward=1e308, observation=Observation(messages=(Message(role="user", content="on"),)))


@pytest.mark.parametrize("method", ["__init__", "reset", "step"])
@pytest.mark.parametrize("blocking", [False, True])
def test_environment_exception_is_stored_as_a_failure(play: Play, method: str, blocking: bool) -> None:
    broken = type("Broken", (Chat,), {method: boom})
    trajectory = play(broken, blocking=blocking)
    assert failure_of(trajectory).boundary is Boundary.ENVIRONMENT
    assert "ValueError: the simulator fell over" in failure_of(trajectory).message
    assert all(environment.closed == 1 for environment in play.environments)
    assert play.engine.released == (["s"] if play.environments else [])  # no session begins without an environment
    if method == "step":
        assert trajectory.sampled_tokens > 0


def raising(error: BaseException) -> Callable[..., Any]:
    def step(self: Chat, action: Message) -> Step:
        raise error

    return step


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), StopIteration(), TimeoutError()])
@pytest.mark.parametrize("blocking", [False, True])
def test_system_exit_is_stored_as_a_failure(play: Play, error: BaseException, blocking: bool) -> None:
    trajectory = play(type("Leaving", (Chat,), {"step": raising(error)}), blocking=blocking)
    assert failure_of(trajectory).boundary is Boundary.ENVIRONMENT


@pytest.mark.parametrize(
    "wrong", [lambda self, action: None, lambda self, action: {"done": True}, bad_reward, huge_reward]
)
def test_invalid_step_result_is_a_failure(play: Play, wrong: Callable[..., Any]) -> None:
    trajectory = play(type("Wrong", (Chat,), {"step": wrong}))
    assert failure_of(trajectory).boundary is Boundary.ENVIRONMENT
    assert "step" in failure_of(trajectory).message


def test_failing_close_is_counted_and_logged(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    trajectory = play(type("Sticky", (Chat,), {"close": boom}))
    assert (trajectory.stop, trajectory.failure) == (Stop.DONE, None)
    assert trajectory.scorable
    assert trajectory.metrics["closing_failures"] == 1.0
    assert [record.name for record in caplog.records] == ["rlcore.episode"]
    assert "the simulator fell over" in caplog.text


def test_failing_close_is_added_to_an_earlier_failure(play: Play) -> None:
    trajectory = play(type("Sticky", (Chat,), {"step": boom, "close": boom}))
    message = failure_of(trajectory).message
    assert "step raised" in message
    assert "close raised" in message
    assert "closing_failures" not in trajectory.metrics


@pytest.mark.parametrize(
    ("error", "boundary"), [(ToolFailure("x"), Boundary.TOOL), (EnvironmentFailure("x"), Boundary.ENVIRONMENT)]
)
def test_tool_failure_differs_from_environment_failure(play: Play, error: Exception, boundary: Boundary) -> None:
    trajectory = play(type("Failing", (Chat,), {"step": raising(error)}))
    assert failure_of(trajectory).boundary is boundary


def test_hanging_environment_exceeds_its_deadline(play: Play) -> None:
    class Hanging(Chat):
        async def step(self, action: Message) -> Step:
            await asyncio.sleep(30)
            return Step()

    start = time.monotonic()
    trajectory = play(Hanging, environment_timeout_s=0.5)
    assert time.monotonic() - start < 5
    assert failure_of(trajectory).boundary is Boundary.TIMEOUT
    assert failure_of(trajectory).message == "step did not answer within 0.5 s"
    assert play.environments[0].closed == 1


def test_hanging_thread_exceeds_its_deadline_and_is_abandoned(play: Play) -> None:
    done = threading.Event()

    class Hanging(Chat):
        def step(self, action: Message) -> Step:  # type: ignore[override]
            done.wait(30)
            return Step()

    start = time.monotonic()
    trajectory = play(Hanging, blocking=True, environment_timeout_s=0.5)
    assert time.monotonic() - start < 5
    assert failure_of(trajectory).boundary is Boundary.TIMEOUT
    done.set()


def test_trajectory_has_a_deadline(play: Play) -> None:
    trajectory = play(latency_s=0.05, trajectory_timeout_s=0.07)
    assert failure_of(trajectory).boundary is Boundary.TIMEOUT
    assert "limit of the trajectory" in failure_of(trajectory).message


def test_hanging_engine_is_an_engine_failure(play: Play) -> None:
    trajectory = play(latency_s=30.0, engine_timeout_s=0.05)
    assert failure_of(trajectory).boundary is Boundary.ENGINE


@pytest.mark.parametrize(
    "completion",
    [
        Completion(token_ids=TokenIds(), logprobs=Logprobs(), finish_reason="stop"),
        Completion(token_ids=TokenIds([1, 2]), logprobs=Logprobs([0.0]), finish_reason="stop"),
        Completion(token_ids=TokenIds([1]), logprobs=Logprobs([float("nan")]), finish_reason="stop"),
        Completion(token_ids=TokenIds([1] * 65), logprobs=Logprobs([0.0] * 65), finish_reason="stop"),
    ],
    ids=["no token", "a log-probability too few", "not finite", "more than allowed"],
)
def test_invalid_completion_is_an_engine_failure(play: Play, completion: Completion) -> None:
    class Nonsense:
        async def generate(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
            return completion

        async def release(self, session: str) -> None: ...

    trajectory = play(engine=Nonsense())
    assert failure_of(trajectory).boundary is Boundary.ENGINE
    assert trajectory.sampled_tokens == 0


def test_blocking_methods_run_in_threads(play: Play) -> None:
    class Plain:
        def __init__(self) -> None:
            self.threads: set[str] = set()

        def reset(self, task: Task, *, seed: int) -> Observation:
            self.threads.add(threading.current_thread().name)
            return Observation(messages=task.messages)

        def step(self, action: Message) -> Step:
            self.threads.add(threading.current_thread().name)
            return Step(terminated=True)

        def close(self) -> None: ...

    assert play(Plain).stop is Stop.DONE
    assert play.environments[-1].threads == {"MainThread"}
    assert play(Plain, blocking=True).stop is Stop.DONE
    assert "MainThread" not in play.environments[-1].threads


def test_cancelled_trajectory_frees_its_resources(play: Play) -> None:
    async def interrupt() -> None:
        task = asyncio.create_task(play.go(latency_s=30.0, engine_timeout_s=60.0))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupt())
    assert play.environments[0].closed == 1
    assert play.engine.released == ["s"]


def test_unrenderable_messages_are_stored_as_a_failure(play: Play) -> None:
    class Odd(Chat):
        async def reset(self, task: Task, *, seed: int) -> Observation:
            return Observation(messages=(Message(role="user", content=3),))  # type: ignore[arg-type]

    trajectory = play(Odd)
    assert failure_of(trajectory).boundary is Boundary.ENVIRONMENT


def test_concurrent_trajectories_do_not_interfere(play: Play) -> None:
    async def many() -> list[Trajectory]:
        generator = random.Random(0)
        plays = [Play(play.folder) for _ in range(32)]
        texts = [[f"{index}-{turn}" for turn in range(3)] for index in range(32)]
        latencies = [generator.random() * 0.02 for _ in plays]
        games = (
            one.go(replies=text, latency_s=latency) for one, text, latency in zip(plays, texts, latencies, strict=True)
        )
        return await asyncio.gather(*games)

    for index, trajectory in enumerate(asyncio.run(many())):
        said = [message.text for message in trajectory.messages if message.role == "assistant"]
        assert said == [f"{index}-{turn}" for turn in range(3)]


def test_reset_receives_a_declared_context(play: Play) -> None:
    class Seeing(Chat):
        async def reset(self, task: Task, *, seed: int, context: Any) -> Observation:  # type: ignore[override]
            self.context = context
            return Observation(messages=task.messages)

    assert play(Seeing).stop is Stop.DONE
    assert play.environments[0].context is play.contexts[0]
    assert (play.contexts[0].task, play.contexts[0].sibling) == (TASK, 3)
