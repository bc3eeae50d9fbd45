"""Environments that rewrite the context: each rewriting begins a new segment of the trajectory."""

from __future__ import annotations

import asyncio

import pytest
from rlcore.types import Boundary, Message, Observation, Step, Stop, Task, Trajectory
from scripted_episodes import TASK, Chat, Play

SUMMARY = Message(role="user", content="so far: two results")
LONG = "9" * 300


class Forgetful(Chat):
    """Five turns; after the second and the fourth a summary replaces the conversation."""

    turns = 5

    async def step(self, action: Message) -> Step:
        step = await super().step(action)
        if len(self.actions) not in (2, 4):
            return step
        observation = Observation(messages=step.observation.messages, context=(SUMMARY,))
        return Step(observation=observation, reward=0.25)


@pytest.fixture
def forgetful(play: Play) -> Trajectory:
    return play(Forgetful, replies=["a", "b"])


def test_rewritten_context_begins_a_segment(play: Play, forgetful: Trajectory) -> None:
    assert (forgetful.stop, forgetful.failure) == (Stop.DONE, None)
    first, second, third = forgetful.segments
    assert [segment.context for segment in forgetful.segments] == [(), (SUMMARY,), (SUMMARY,)]
    assert [[turn.kind for turn in segment.turns] for segment in (first, second)] == [["observation", "policy"] * 2] * 2
    assert [message.text for message in second.turns[0].messages] == ["result 2"]
    rendered = play.chat.prompt((SUMMARY, *second.turns[0].messages))
    assert second.token_ids[: second.prompt_length] == rendered
    assert [turn.messages[0].text for turn in third.turns] == ["result 4", "a", "result 5"]


def test_conversation_contains_repeated_messages_once(forgetful: Trajectory) -> None:
    texts = ["how many?", "a", "result 1", "b", "result 2", "a", "result 3", "b", "result 4", "a", "result 5"]
    assert [message.text for message in forgetful.messages] == texts
    assert forgetful.turn_reward == pytest.approx(1.25)
    assert forgetful.metrics["turns"] == 5.0


def test_each_segment_has_its_own_session_which_is_released(play: Play, forgetful: Trajectory) -> None:
    assert play.engine.sessions == ["s", "s", "s/1", "s/1", "s/2"]
    assert play.engine.released == ["s", "s/1", "s/2"]
    whole = [segment.token_ids for segment in forgetful.segments for _ in range(2)][:5]
    for prompt, tokens in zip(play.engine.prompts, whole, strict=True):
        assert tokens[: len(prompt)] == prompt.token_ids


def test_turns_tile_every_segment(forgetful: Trajectory) -> None:
    for segment in forgetful.segments:
        ends = [turn.end for turn in segment.turns]
        assert [turn.start for turn in segment.turns] == [0, *ends[:-1]]
        assert ends[-1] == len(segment)
        for turn in segment.turns:
            assert set(segment.loss_mask[turn.start : turn.end]) <= {turn.kind == "policy"}


def test_context_limit_applies_to_each_segment(play: Play) -> None:
    class Long(Chat):
        turns = 9

        async def step(self, action: Message) -> Step:
            step = await super().step(action)
            message = Message(role="tool", content=LONG)
            return Step(observation=Observation(messages=(message,), context=()), terminated=step.terminated)

    trajectory = play(Long, max_context_tokens=500)
    assert trajectory.stop is Stop.DONE
    assert all(len(segment) < 500 for segment in trajectory.segments)
    assert sum(len(segment) for segment in trajectory.segments) > 1000


def test_rewritten_context_that_is_too_long_ends_as_length(play: Play) -> None:
    class Verbose(Chat):
        async def step(self, action: Message) -> Step:
            context = (Message(role="user", content="9" * 5000),)
            return Step(observation=Observation(messages=(Message(role="tool", content="new"),), context=context))

    trajectory = play(Verbose)
    assert trajectory.stop is Stop.LENGTH
    assert len(trajectory.segments) == 1
    assert trajectory.messages[-1].text == "new"
    assert play.engine.released == ["s"]


def test_first_observation_cannot_rewrite_the_context(play: Play) -> None:
    class Early(Chat):
        async def reset(self, task: Task, *, seed: int) -> Observation:
            return Observation(messages=task.messages, context=(SUMMARY,))

    trajectory = play(Early)
    assert trajectory.failure is not None
    assert trajectory.failure.boundary is Boundary.ENVIRONMENT


def test_deadlines_apply_to_the_whole_trajectory(play: Play) -> None:
    trajectory = asyncio.run(play.go(Forgetful, latency_s=0.05, trajectory_timeout_s=0.17))
    assert trajectory.failure is not None
    assert trajectory.failure.boundary is Boundary.TIMEOUT
    assert len(trajectory.segments) >= 1
    assert trajectory.messages[0] == TASK.messages[0]
