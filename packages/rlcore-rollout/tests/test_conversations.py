"""Agents with their own loop: what they send as messages becomes segments of the tokens that were sampled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rlcore.episodes.answers import cut_by
from rlcore.episodes.context import EpisodeContext
from rlcore.errors import EngineError, EpisodeEnded
from rlcore.harnesses import EpisodePolicy, Harness
from rlcore.types import (
    Boundary,
    ImagePart,
    Message,
    Observation,
    Sampling,
    Step,
    Stop,
    Task,
    TextPart,
    ToolCall,
    ToolSchema,
    Trajectory,
)
from scripted_episodes import Play, Recording

SYSTEM, QUESTION = Message(role="system", content="be brief"), Message(role="user", content="how many?")
MORE = Message(role="user", content="and now?")
ADD = ToolSchema(name="add", description="Adds.", parameters={"type": "object", "properties": {"a": {}, "b": {}}})
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [2, 3.5]}}\n</tool_call>'

Agent = Callable[[EpisodePolicy], Any]


@pytest.fixture
def run(play: Play) -> Callable[..., Trajectory]:
    def run(agent: Agent, **options: Any) -> Trajectory:
        wrong: list[AssertionError] = []

        class Own:
            closed = 0

            async def run(self, task: Task, *, policy: EpisodePolicy, seed: int, context: EpisodeContext) -> Step:
                try:
                    answer = await agent(policy)
                except AssertionError as error:
                    wrong.append(error)
                    raise
                return answer if isinstance(answer, Step) else Step(terminated=True, reward=answer)

            async def close(self) -> None:
                self.closed += 1

        assert isinstance(Own(), Harness)
        trajectory = play(Own, **options)
        assert not wrong, wrong
        assert play.environments[-1].closed == 1
        if isinstance(play.engine, Recording):
            assert set(play.engine.sessions) <= set(play.engine.released)
            assert len(set(play.engine.released)) == len(play.engine.released)
        for segment in trajectory.segments:
            ends = [turn.end for turn in segment.turns if turn.end]
            assert ends[-1] == len(segment)
            assert segment.sampled_tokens == sum(t.end - t.start for t in segment.turns if t.kind == "policy")
        return trajectory

    return run


def spoken(trajectory: Trajectory) -> list[list[str]]:
    return [[m.text for turn in segment.turns for m in turn.messages] for segment in trajectory.segments]


def test_a_growing_conversation_is_one_segment_of_the_sampled_tokens(play: Play, run: Any) -> None:
    async def agent(policy: EpisodePolicy) -> float:
        messages = [SYSTEM, QUESTION]
        for _ in range(3):
            messages += [(await policy.respond(messages)).completion.message, MORE]
        assert policy.turns == 3
        return 0.5

    trajectory = run(agent)
    assert (trajectory.stop, trajectory.failure, trajectory.metrics["turns"]) == (Stop.DONE, None, 3.0)
    assert spoken(trajectory) == [["be brief", "how many?", "one", "and now?", "two", "and now?", "three"]]
    assert trajectory.turn_reward == trajectory.metrics["step_reward"] == 0.5
    assert play.engine.sessions == ["s"] * 3
    (segment,) = trajectory.segments
    for prompt, completion in zip(play.engine.prompts, play.engine.completions, strict=True):
        length = len(prompt.token_ids)
        assert segment.token_ids[:length] == prompt.token_ids  # token in, token out
        assert segment.token_ids[length : length + len(completion.token_ids)] == completion.token_ids
    assert trajectory.sampling is not None
    assert trajectory.sampling.seed == 0


def rewritten(message: Message) -> Message:
    """As SDKs send a message back: other ids, arguments written in another order, parts in place of text."""
    calls = tuple(
        ToolCall(name=c.name, arguments=dict(reversed(list((c.arguments or {}).items()))), id="x")
        for c in message.tool_calls
    )
    return Message(role="assistant", content=(TextPart(text=f"{message.text}\n"),), tool_calls=calls)


def test_calls_that_are_sent_back_in_another_form_continue_the_tokens(play: Play, run: Any) -> None:
    async def agent(policy: EpisodePolicy) -> None:
        answer = (await policy.respond([QUESTION], tools=[ADD])).completion.message
        assert [(call.id, call.name) for call in answer.tool_calls] == [("call_0_0", "add")]
        result = Message(role="tool", content="3", tool_call_id="x", name="add")
        await policy.respond([QUESTION, rewritten(answer), result], tools=[ADD])

    trajectory = run(agent, replies=[f"I add. {CALL}", "3"], sampling=Sampling(max_new_tokens=200))
    (segment,) = trajectory.segments
    assert [turn.kind for turn in segment.turns] == ["observation", "policy"] * 2
    assert play.chat.decode(segment.token_ids.tolist()).count('"b": [2, 3.5]') == 1
    assert (trajectory.tools, trajectory.metrics["tool_calls"]) == ((ADD,), 1.0)


def test_other_messages_and_tools_begin_segments(play: Play, run: Any) -> None:
    async def agent(policy: EpisodePolicy) -> None:
        first = (await policy.respond([SYSTEM, QUESTION])).completion.message
        await policy.respond([SYSTEM, MORE])  # the question was dropped
        await policy.respond([SYSTEM, QUESTION, first, MORE], tools=[ADD])  # the tools changed
        await policy.respond([SYSTEM, QUESTION, replace(first, content="changed"), MORE])
        await policy.respond([SYSTEM, QUESTION, first, MORE])  # continues the first one

    trajectory = run(agent, replies=["one", "two"])
    assert [[message.text for message in segment.context] for segment in trajectory.segments] == [
        [],
        ["be brief", "and now?"],
        ["be brief", "how many?", "one", "and now?"],
        ["be brief", "how many?"],
    ]
    assert spoken(trajectory) == [
        ["be brief", "how many?", "one", "and now?", "two"],
        ["one"],
        ["one"],
        ["changed", "and now?", "one"],
    ]
    assert play.engine.sessions == ["s", "s/1", "s/2", "s/3", "s"]
    assert len({sampling.seed for sampling in play.engine.samplings}) == 4


def test_samples_do_not_depend_on_the_order_of_requests(play: Play, run: Any) -> None:
    def agent(order: list[str]) -> Agent:
        async def ask(policy: EpisodePolicy) -> None:
            requests = [policy.respond([Message(role="user", content=text)]) for text in order]
            assert sorted(response.turn for response in await asyncio.gather(*requests)) == [0, 1, 2]

        return ask

    found = []
    for order in (["a", "b", "a"], ["b", "a", "a"]):
        trajectory = run(agent(order), latency_s=0.01)
        assert len(trajectory.segments) == 3
        found.append(
            sorted(
                (s.seed, p.token_ids.tobytes())
                for s, p in zip(play.engine.samplings, play.engine.prompts, strict=False)
            )
        )
    assert found[0] == found[1]
    assert len({seed for seed, _ in found[0]}) == 3  # equal prompts get different samples


def test_a_cancelled_or_withdrawn_turn_leaves_nothing(play: Play, run: Any) -> None:
    async def agent(policy: EpisodePolicy) -> None:
        first = await policy.respond([QUESTION])
        messages = [QUESTION, first.completion.message, MORE]
        cancelled = asyncio.ensure_future(policy.respond(messages))
        await asyncio.sleep(0.005)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        lost = await policy.respond(messages)
        policy.withdraw(lost.turn)
        policy.withdraw(first.turn)  # was continued, and the later turn is gone: this one stays
        policy.withdraw(99)
        again = await policy.respond(messages)
        policy.reward(1.0, turn=again.turn)
        policy.reward(0.25, turn=first.turn)
        only = await policy.respond([MORE])
        policy.withdraw(only.turn)
        assert policy.turns == 2

    trajectory = run(agent, latency_s=0.02, replies=["one", "two"])
    (segment,) = trajectory.segments
    assert [turn.reward for turn in segment.turns] == [None, 0.25, None, 1.0]
    assert trajectory.metrics["turns"] == 2.0
    assert play.engine.prompts[1] == play.engine.prompts[2] == play.engine.prompts[3]
    assert play.engine.sessions == ["s", "s", "s/1", "s/2", "s/3"]  # no session continues after tokens were removed


def test_rewards_of_turns_and_of_the_episode_are_added(run: Any) -> None:
    async def agent(policy: EpisodePolicy) -> float:
        first = await policy.respond([QUESTION])
        second = await policy.respond([MORE])
        policy.reward(0.25, turn=second.turn)
        lost = await policy.respond([QUESTION, first.completion.message, MORE])
        policy.reward(7.0)
        policy.withdraw(lost.turn)
        policy.reward(1.7e308, turn=first.turn)
        with pytest.raises(ValueError, match="finite"):
            policy.reward(1.7e308, turn=first.turn)
        policy.reward(-1.7e308, turn=first.turn)
        return 1.0

    trajectory = run(agent)
    assert trajectory.turn_reward == trajectory.metrics["step_reward"] == 1.25
    assert [[turn.reward for turn in segment.turns] for segment in trajectory.segments] == [[None, 0.0], [None, 1.25]]


def test_sampling_of_requests(play: Play, run: Any) -> None:
    async def agent(policy: EpisodePolicy) -> None:
        changes = {"temperature": 0.0, "max_new_tokens": 999, "stop": ("two",)}
        answer = (await policy.respond([QUESTION], sampling=changes)).completion
        assert answer.message.text == "one "
        assert (answer.prompt_tokens, answer.finish_reason) == (len(play.engine.prompts[0]), "stop")
        await policy.respond([QUESTION, answer.message, MORE])

    trajectory = run(agent, replies=["one two three"])
    assert len(trajectory.segments) == 1  # the removed text does not matter
    first, second = play.engine.samplings
    assert (first.temperature, first.max_new_tokens, first.stop) == (0.0, 64, ("two",))
    assert (second.temperature, second.stop) == (1.0, ())
    assert trajectory.sampling is None  # it differed


def test_an_unreadable_call_is_shown_as_text(run: Any) -> None:
    async def agent(policy: EpisodePolicy) -> None:
        message = (await policy.respond([QUESTION], tools=[ADD])).completion.message
        assert message == Message(role="assistant", content="<tool_call>\n{broken\n</tool_call>")
        await policy.respond([QUESTION, message, MORE], tools=[ADD])

    assert len(run(agent, replies=["<tool_call>\n{broken\n</tool_call>"]).segments) == 1


def test_limits_end_the_episode_with_their_reason(run: Any) -> None:
    async def until_refused(policy: EpisodePolicy) -> None:
        messages = [QUESTION]
        while True:
            messages += [(await policy.respond(messages)).completion.message, Message(role="user", content="9" * 300)]

    full = run(until_refused, max_context_tokens=500)
    assert (full.stop, full.failure) == (Stop.LENGTH, None)

    async def limited(policy: EpisodePolicy) -> None:
        policy.max_turns = 2
        await until_refused(policy)

    assert run(limited).stop is Stop.MAX_TURNS
    assert run(limited).metrics["turns"] == 2.0

    async def summarises(policy: EpisodePolicy) -> None:
        with pytest.raises(EpisodeEnded, match=r"has \d+ tokens, and the context 500"):
            await until_refused(policy)
        await policy.respond([MORE])

    again = run(summarises, max_context_tokens=500)
    assert again.stop is Stop.DONE
    assert len(again.segments) == 2

    async def cut(policy: EpisodePolicy) -> None:
        assert (await policy.respond([QUESTION], sampling={"max_new_tokens": 1})).completion.finish_reason == "length"

    assert cut_by(run(cut, replies=["many words here"]), 64) == "turn"  # the limit of the request

    async def crashes_after(policy: EpisodePolicy) -> None:
        await cut(policy)
        raise KeyError("nothing")

    crashed = run(crashes_after, replies=["many words here"])
    assert "nothing" in str(crashed.failure)  # only a request that was refused excuses an exception
    assert crashed.stop is Stop.CANCELLED


def test_failures(play: Play, run: Any) -> None:
    async def crashes(policy: EpisodePolicy) -> None:
        await policy.respond([QUESTION])
        raise RuntimeError("the agent fell over")

    failure = run(crashes).failure
    assert failure is not None
    assert failure.boundary is Boundary.ENVIRONMENT
    assert "fell over" in failure.message

    async def silent(policy: EpisodePolicy) -> None: ...

    assert "did not ask the policy" in str(run(silent).failure)

    async def bad(policy: EpisodePolicy) -> None:
        image = Message(role="user", content=(ImagePart(sha256="0" * 64),))
        wrong: Any = None
        for messages in ([], [QUESTION, Message(role="assistant", content="x")], [image], wrong):
            with pytest.raises(ValueError, match=r"."):
                await policy.respond(messages or [])
        for value, turn in ((1.0, None), (float("nan"), None)):
            with pytest.raises(ValueError, match=r"."):
                policy.reward(value, turn=turn)
        await policy.respond([QUESTION])

    assert run(bad).failure is None

    class Broken:
        async def generate(self, *arguments: Any, **keywords: Any) -> Any:
            raise EngineError("out of memory")

        async def release(self, session: str) -> None: ...

    async def hides(policy: EpisodePolicy) -> float:
        for _ in range(2):
            with pytest.raises(EngineError, match="out of memory"):
                await policy.respond([QUESTION])
        return 1.0

    failed = run(hides, engine=Broken())
    assert failed.failure is not None
    assert failed.failure.boundary is Boundary.ENGINE


def test_nothing_is_sampled_after_the_end(run: Any) -> None:
    kept: list[EpisodePolicy] = []

    async def agent(policy: EpisodePolicy) -> None:
        kept.append(policy)
        await policy.respond([QUESTION])

    trajectory = run(agent)
    for policy in (kept[0], kept[0].role("late")):
        with pytest.raises(EpisodeEnded):
            asyncio.run(policy.respond([QUESTION]))  # type: ignore[arg-type]
    assert len(trajectory.segments) == 1


def test_each_role_becomes_a_trajectory_with_its_own_rewards(play: Play, run: Any) -> None:
    async def agent(policy: EpisodePolicy) -> Step:
        first, second = policy.role("player-0"), policy.role("player-1")
        assert policy.role("player-0") is second.role("player-0") is first
        opening = (await first.respond([QUESTION])).completion.message
        reply = (await second.respond([SYSTEM, Message(role="user", content=opening.text)])).completion.message
        await first.respond([QUESTION, opening, Message(role="user", content=reply.text)])
        first.reward(1.0)
        second.reward(-1.0)
        with pytest.raises(ValueError, match="letters, digits"):
            policy.role("player 0")
        return Step(observation=Observation(messages=(MORE,)), terminated=True, info={"moves": 3})

    run(agent)
    first, second = play.trajectories
    assert [one.role for one in play.trajectories] == ["player-0", "player-1"]
    assert spoken(first) == [["how many?", "one", "one", "two", "and now?"]]
    assert spoken(second) == [["be brief", "one", "one", "and now?"]]
    assert (first.turn_reward, second.turn_reward) == (1.0, -1.0)
    assert (first.metrics["step_reward"], second.metrics["step_reward"]) == (1.0, -1.0)
    assert (first.metrics["moves"], first.metrics["turns"], second.metrics["turns"]) == (3.0, 2.0, 1.0)
    assert first.sampling is not None
    assert second.sampling is not None
    assert first.sampling.seed != second.sampling.seed


def test_a_reward_without_a_role_and_a_failure_concern_the_whole_episode(play: Play, run: Any) -> None:
    async def rewards_nobody(policy: EpisodePolicy) -> float:
        await policy.role("a").respond([QUESTION])
        return 1.0

    assert "answered only in roles" in str(run(rewards_nobody).failure)

    async def crashes(policy: EpisodePolicy) -> None:
        await policy.role("a").respond([QUESTION])
        await policy.role("b").respond([QUESTION])
        raise RuntimeError("no board")

    run(crashes)
    assert [(one.role, "no board" in str(one.failure)) for one in play.trajectories] == [("a", True), ("b", True)]

    async def goes_on(policy: EpisodePolicy) -> None:
        policy.role("a").max_turns = 0
        with contextlib.suppress(EpisodeEnded):
            await policy.role("a").respond([QUESTION])
        await policy.role("b").respond([QUESTION])
        raise RuntimeError("no board")

    run(goes_on)
    assert all("no board" in str(one.failure) for one in play.trajectories)

    async def is_refused(policy: EpisodePolicy) -> None:
        await policy.role("b").respond([QUESTION])
        policy.role("a").max_turns = 0
        await policy.role("a").respond([QUESTION])

    run(is_refused)
    assert [one.failure for one in play.trajectories] == [None, None]
