from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rlcore.types import (
    NOT_SCORED,
    Completion,
    EndReason,
    Message,
    Observation,
    Sampling,
    Step,
    Task,
    Trajectory,
)
from rlcore.weights import FolderWeights
from rlcore_rollout.chat.plain import PlainFormat
from rlcore_rollout.engines.scripted import ScriptedEngine, ScriptedEngineConfig
from rlcore_rollout.loop import AgentLoop, Limits
from rlcore_rollout.speech import TokenSpeech

TASK = Task(id="t", messages=(Message(role="user", content="how many?"),))
SAMPLING = Sampling(max_new_tokens=64)


class Chat:
    """Answers ``turns`` times, then ends. Subclasses go wrong in one place each."""

    turns = 3

    def __init__(self) -> None:
        self.actions: list[Message] = []
        self.closed = 0
        self.seed: int | None = None

    async def reset(self, task: Task, *, seed: int) -> Observation:
        self.seed = seed
        return Observation(messages=task.messages)

    async def step(self, action: Message) -> Step:
        self.actions.append(action)
        answer = Message(role="tool", content=f"result {len(self.actions)}")
        return Step(
            observation=Observation(messages=(answer,)),
            terminated=len(self.actions) >= self.turns,
            reward=0.25,
            info={"calls": 2, "good": True, "name": "x", "bad": float("nan")},
        )

    async def close(self) -> None:
        self.closed += 1


class Recording:
    """A scripted engine that remembers what it was asked, and when it was released."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine
        self.prompts: list[tuple[int, ...]] = []
        self.samplings: list[Sampling] = []
        self.completions: list[Completion] = []
        self.released: list[str] = []

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, *, session: str) -> Completion:
        self.prompts.append(tuple(prompt_ids))
        self.samplings.append(sampling)
        completion = await self.engine.generate(prompt_ids, sampling, session=session)
        self.completions.append(completion)
        return completion

    async def release(self, session: str) -> None:
        self.released.append(session)
        await self.engine.release(session)


class Play:
    """One trajectory and everything that took part in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chat = PlainFormat(folder)
        self.environments: list[Any] = []

    async def go(
        self,
        environment: Callable[[], Any] = Chat,
        *,
        replies: Sequence[str] = ("one", "two", "three"),
        sampling: Sampling = SAMPLING,
        blocking: bool = False,
        engine: Any = None,
        latency_s: float = 0.0,
        **limits: Any,
    ) -> Trajectory:
        def make() -> Any:
            self.environments.append(environment())
            return self.environments[-1]

        config = ScriptedEngineConfig(replies=tuple(replies), latency_s=latency_s)
        self.engine = engine or Recording(ScriptedEngine(config, FolderWeights(folder=self.folder)))
        bounds = {
            "max_context_tokens": 1000,
            "environment_timeout_s": 5.0,
            "engine_timeout_s": 5.0,
            "trajectory_timeout_s": 10.0,
        }
        values = {**bounds, **limits}
        speech = TokenSpeech(
            engine=self.engine, chat_format=self.chat, max_context_tokens=values.pop("max_context_tokens")
        )
        loop = AgentLoop(make_environment=make, speech=speech, limits=Limits(**values), blocking=blocking)
        stop = self.chat.stop_token_ids
        sampling = Sampling(max_new_tokens=sampling.max_new_tokens, stop_token_ids=stop, seed=sampling.seed)
        return await loop.run(TASK, sibling=3, environment_seed=11, sampling=sampling, session="s")

    def __call__(self, *arguments: Any, **keywords: Any) -> Trajectory:
        return asyncio.run(self.go(*arguments, **keywords))


@pytest.fixture
def play(tiny_folder: Path) -> Play:
    return Play(tiny_folder)


def test_a_trajectory_holds_exactly_the_tokens_that_the_engine_saw_and_sampled(play: Play) -> None:
    trajectory = play()
    assert trajectory.end_reason is EndReason.DONE
    assert trajectory.error is None
    assert (trajectory.task_id, trajectory.sibling) == ("t", 3)
    for prompt in play.engine.prompts:
        assert trajectory.token_ids[: len(prompt)] == prompt
    sampled = [index for index, mask in enumerate(trajectory.loss_mask) if mask]
    expected = [
        position
        for prompt, completion in zip(play.engine.prompts, play.engine.completions, strict=True)
        for position in range(len(prompt), len(prompt) + len(completion.token_ids))
    ]
    assert sampled == expected
    assert [trajectory.token_ids[i] for i in sampled] == [t for c in play.engine.completions for t in c.token_ids]
    assert len(trajectory.token_ids) == len(trajectory.loss_mask) == len(trajectory.logprobs)
    assert trajectory.prompt_length == len(play.engine.prompts[0])
    assert play.chat.decode(trajectory.token_ids).startswith("<|im_start|>user\nhow many?<|im_end|>\n")


def test_turns_tile_the_tokens_and_messages_are_the_conversation(play: Play) -> None:
    trajectory = play()
    ends = [turn.end for turn in trajectory.turns]
    assert [turn.start for turn in trajectory.turns] == [0, *ends[:-1]]
    assert ends[-1] == len(trajectory.token_ids)
    kinds = ["observation", "policy"] * 3 + ["observation"]
    assert [turn.kind for turn in trajectory.turns] == kinds
    assert trajectory.turns[-1].start == trajectory.turns[-1].end, "nobody saw the last observation"
    texts = ["how many?", "one", "result 1", "two", "result 2", "three", "result 3"]
    assert [message.text for message in trajectory.messages] == texts
    assert trajectory.final_response == "three"


def test_step_rewards_stay_on_their_turns_and_numbers_of_info_are_summed(play: Play) -> None:
    trajectory = play()
    assert [turn.reward for turn in trajectory.turns if turn.kind == "policy"] == [0.25] * 3
    assert trajectory.metrics == {"turns": 3.0, "step_reward": 0.75, "calls": 6.0, "good": 3.0}
    assert trajectory.reward is None


def test_environment_and_session_are_freed_exactly_once(play: Play) -> None:
    play()
    assert [environment.closed for environment in play.environments] == [1]
    assert play.engine.released == ["s"]
    assert play.environments[0].seed == 11


def test_a_truncated_generation_ends_as_length_unread_and_unseen_by_the_environment(play: Play) -> None:
    replies = ['<tool_call>{"name": "x", "arguments": {}}</tool_call>' * 9]
    trajectory = play(replies=replies, sampling=Sampling(max_new_tokens=60))
    assert trajectory.end_reason is EndReason.LENGTH
    assert EndReason.LENGTH not in NOT_SCORED
    assert trajectory.messages[-1].role == "assistant"
    assert trajectory.messages[-1].tool_calls == ()
    assert trajectory.turns[-1].finish_reason == "length"
    assert trajectory.sampled_tokens == 60
    assert play.environments[0].actions == []
    assert play.environments[0].closed == 1


def test_a_prompt_that_fills_the_context_ends_as_length_before_generating(play: Play) -> None:
    trajectory = play(max_context_tokens=10)
    assert trajectory.end_reason is EndReason.LENGTH
    assert play.engine.prompts == []
    assert trajectory.token_ids == ()
    assert trajectory.messages == TASK.messages


@pytest.mark.parametrize("spare", [0, 1, 5])
def test_a_generation_gets_no_more_than_the_room_that_is_left(play: Play, spare: int) -> None:
    length = len(play.chat.prompt(TASK.messages))
    trajectory = play(replies=["a long answer"], max_context_tokens=length + spare)
    assert trajectory.end_reason is EndReason.LENGTH
    assert trajectory.sampled_tokens == spare
    assert len(trajectory.token_ids) == (length + spare if spare else 0)


def test_an_observation_that_fills_the_context_is_kept_without_its_tokens(play: Play) -> None:
    class Verbose(Chat):
        async def step(self, action: Message) -> Step:
            return Step(observation=Observation(messages=(Message(role="tool", content="9" * 5000),)))

    trajectory = play(Verbose)
    assert trajectory.end_reason is EndReason.LENGTH
    assert len(trajectory.token_ids) < 100
    assert len(trajectory.messages[-1].text) == 5000


def test_end_reasons_come_from_the_last_step(play: Play) -> None:
    class Truncating(Chat):
        async def step(self, action: Message) -> Step:
            return Step(truncated=True)

    class GivingUp(Chat):
        async def step(self, action: Message) -> Step:
            return Step(truncated=True, end_reason=EndReason.TOOL_ERROR)

    assert play(Truncating).end_reason is EndReason.MAX_TURNS
    assert play(GivingUp).end_reason is EndReason.TOOL_ERROR


def boom(*arguments: object, **keywords: object) -> Any:
    raise ValueError("the simulator fell over")


def bad_reward(self: Chat, action: Message) -> Step:
    return Step(reward=float("nan"), terminated=True)


@pytest.mark.parametrize("method", ["__init__", "reset", "step"])
@pytest.mark.parametrize("blocking", [False, True])
def test_an_exception_of_the_environment_is_data(play: Play, method: str, blocking: bool) -> None:
    broken = type("Broken", (Chat,), {method: boom})
    trajectory = play(broken, blocking=blocking)
    assert trajectory.end_reason is EndReason.ENVIRONMENT_ERROR
    assert "ValueError: the simulator fell over" in (trajectory.error or "")
    assert all(environment.closed == 1 for environment in play.environments)
    assert play.engine.released == ["s"]
    if method == "step":
        assert trajectory.sampled_tokens > 0


def raising(error: BaseException) -> Callable[..., Any]:
    def step(self: Chat, action: Message) -> Step:
        raise error

    return step


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), StopIteration(), TimeoutError()])
@pytest.mark.parametrize("blocking", [False, True])
def test_not_even_leaving_the_program_is_more_than_data(play: Play, error: BaseException, blocking: bool) -> None:
    trajectory = play(type("Leaving", (Chat,), {"step": raising(error)}), blocking=blocking)
    assert trajectory.end_reason is EndReason.ENVIRONMENT_ERROR


@pytest.mark.parametrize("wrong", [lambda self, action: None, lambda self, action: {"done": True}, bad_reward])
def test_an_answer_that_is_no_step_is_data(play: Play, wrong: Callable[..., Any]) -> None:
    trajectory = play(type("Wrong", (Chat,), {"step": wrong}))
    assert trajectory.end_reason is EndReason.ENVIRONMENT_ERROR
    assert "step" in (trajectory.error or "")


def test_a_failing_close_is_told_and_changes_nothing(play: Play) -> None:
    trajectory = play(type("Sticky", (Chat,), {"close": boom}))
    assert trajectory.end_reason is EndReason.DONE
    assert "close raised ValueError" in (trajectory.error or "")


def test_a_hanging_environment_meets_its_deadline(play: Play) -> None:
    class Hanging(Chat):
        async def step(self, action: Message) -> Step:
            await asyncio.sleep(30)
            return Step()

    start = time.monotonic()
    trajectory = play(Hanging, environment_timeout_s=0.5)
    assert time.monotonic() - start < 5
    assert trajectory.end_reason is EndReason.TIMEOUT
    assert trajectory.error == "step did not answer within 0.5 s"
    assert play.environments[0].closed == 1


def test_a_hanging_thread_meets_its_deadline_and_is_left_behind(play: Play) -> None:
    done = threading.Event()

    class Hanging(Chat):
        def step(self, action: Message) -> Step:  # type: ignore[override]
            done.wait(30)
            return Step()

    start = time.monotonic()
    trajectory = play(Hanging, blocking=True, environment_timeout_s=0.5)
    assert time.monotonic() - start < 5
    assert trajectory.end_reason is EndReason.TIMEOUT
    done.set()


def test_the_whole_trajectory_has_a_deadline(play: Play) -> None:
    trajectory = play(latency_s=0.05, trajectory_timeout_s=0.07)
    assert trajectory.end_reason is EndReason.TIMEOUT
    assert "whole trajectory" in (trajectory.error or "")


def test_a_hanging_engine_is_an_engine_error(play: Play) -> None:
    trajectory = play(latency_s=30.0, engine_timeout_s=0.05)
    assert trajectory.end_reason is EndReason.ENGINE_ERROR


@pytest.mark.parametrize(
    ("completion", "sentence"),
    [
        (Completion(token_ids=(), logprobs=(), finish_reason="stop"), "no token"),
        (Completion(token_ids=(1, 2), logprobs=(0.0,), finish_reason="stop"), "2 tokens with 1 log-prob"),
        (Completion(token_ids=(1,), logprobs=(float("nan"),), finish_reason="stop"), "not finite"),
        (Completion(token_ids=(1,) * 65, logprobs=(0.0,) * 65, finish_reason="stop"), "65 tokens where 64"),
    ],
)
def test_an_impossible_completion_is_an_engine_error(play: Play, completion: Completion, sentence: str) -> None:
    class Nonsense:
        async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, *, session: str) -> Completion:
            return completion

        async def release(self, session: str) -> None: ...

    trajectory = play(engine=Nonsense())
    assert trajectory.end_reason is EndReason.ENGINE_ERROR
    assert sentence in (trajectory.error or "")


def test_plain_methods_work_and_blocking_ones_run_in_threads(play: Play) -> None:
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

    assert play(Plain).end_reason is EndReason.DONE
    assert play.environments[-1].threads == {"MainThread"}
    assert play(Plain, blocking=True).end_reason is EndReason.DONE
    assert "MainThread" not in play.environments[-1].threads


def test_a_cancelled_trajectory_frees_what_it_holds_and_stays_cancelled(play: Play) -> None:
    async def interrupt() -> None:
        task = asyncio.create_task(play.go(latency_s=30.0, engine_timeout_s=60.0))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupt())
    assert play.environments[0].closed == 1
    assert play.engine.released == ["s"]


def test_messages_that_the_chat_format_cannot_render_are_data(play: Play) -> None:
    class Odd(Chat):
        async def reset(self, task: Task, *, seed: int) -> Observation:
            return Observation(messages=(3,))  # type: ignore[arg-type]

    trajectory = play(Odd)
    assert trajectory.end_reason is EndReason.ENVIRONMENT_ERROR
    assert "chat format" in (trajectory.error or "")


def test_many_trajectories_at_a_time_keep_apart(play: Play) -> None:
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
