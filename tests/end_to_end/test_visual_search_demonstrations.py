"""Demonstrations of visual search are what an episode in the real sandbox would have been."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from rl_plugin_visual_search.config import DataConfig, EnvironmentConfig
from rl_plugin_visual_search.dataset import VisualSearchData
from rl_plugin_visual_search.environment import VisualSearch
from rlcore import Demonstration, EpisodeContext, Message, Task
from rlcore.session.session import RunSession


def demonstrations(**options: float | str) -> list[Demonstration]:
    config = DataConfig.model_validate({"style": "plain", **options})
    return list(VisualSearchData(config).demonstrations(6, seed=0))


async def shown(run: RunSession, task: Task, turns: Sequence[Message]) -> list[Message]:
    """The messages of an episode with these turns."""
    sandbox = run.sandbox()
    context = EpisodeContext(task, open_sandbox=sandbox.open)
    environment = VisualSearch(EnvironmentConfig(max_turns=2))
    try:
        messages = [*(await environment.reset(task, seed=0, context=context)).messages]
        for turn in turns:
            step = await environment.step(turn)
            messages += [turn, *step.observation.messages]
        assert step.terminated
        return messages
    finally:
        await context.aclose()
        await sandbox.close()


@pytest.mark.parametrize("guesses", [0.0, 1.0])
def test_demonstration_is_the_conversation_of_an_episode(guesses: float) -> None:
    run = RunSession.create(
        {"model": {"path": "builtin:tiny-qwen2.5-vl"}, "environment": {"id": "visual-search"}}
        | {"reward": [{"id": "visual-search"}], "data": {"drawn": 4, "held_out": 4}},
        purpose="evaluation",
    )
    try:
        for one in demonstrations(guesses=guesses)[:3]:
            picture = one.images[:1]
            task = Task(id="drawn", messages=one.messages[:1], images=picture, fields={"tools": "code"})
            turns = [message for message in one.messages if message.role == "assistant"]
            assert asyncio.run(shown(run, task, turns)) == list(one.messages)
    finally:
        run.finished()
