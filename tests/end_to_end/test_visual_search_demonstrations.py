"""Demonstrations of visual search are what an episode in the real sandbox would have been."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterable

import pytest
from PIL import Image
from rl_plugin_visual_search.config import DataConfig, EnvironmentConfig
from rl_plugin_visual_search.dataset import VisualSearchData
from rl_plugin_visual_search.environment import VisualSearch
from rl_plugin_visual_search.prompts import Tools
from rlcore import Demonstration, EpisodeContext, Message, Task, TextPart
from rlcore.session.session import RunSession
from rlcore.types import media_hash


async def episode(run: RunSession, one: Demonstration) -> Demonstration:
    """The conversation of an episode with the question and the turns of a demonstration."""
    sandbox = run.sandbox()
    images = list(one.images[:1])
    fields = {"tools": "zoom" if one.tools else "code"}
    task = Task(id="drawn", messages=one.messages[:1], images=tuple(images), fields=fields)
    context = EpisodeContext(task, open_sandbox=sandbox.open)
    environment = VisualSearch(EnvironmentConfig(max_turns=2))
    try:
        first = await environment.reset(task, seed=0, context=context)
        messages = [*first.messages]
        for turn in (message for message in one.messages if message.role == "assistant"):
            step = await environment.step(turn)
            messages += [turn, *step.observation.messages]
            images += step.observation.images
        assert step.terminated
        return Demonstration(messages=tuple(messages), tools=first.tools, images=tuple(images))
    finally:
        await context.aclose()
        await sandbox.close()


def shown(one: Demonstration) -> list[tuple[str, list[str | bytes]]]:
    """The role, the texts and the pixels of each message."""
    by_hash = {media_hash(image): image for image in one.images}
    return [(message.role, list(contents(message, by_hash))) for message in one.messages]


def contents(message: Message, images: dict[str, bytes]) -> Iterable[str | bytes]:
    if isinstance(message.content, str):
        yield message.content
        return
    for part in message.content:
        if isinstance(part, TextPart):
            yield part.text
        else:
            yield Image.open(io.BytesIO(images[part.sha256])).convert("RGB").tobytes()


@pytest.mark.long
@pytest.mark.parametrize(("tools", "guesses"), [("code", 0.0), ("code", 1.0), ("zoom", 0.0)])
def test_demonstration_is_the_conversation_of_an_episode(tools: Tools, guesses: float) -> None:
    tables = {"environment": {"id": "visual-search"}, "reward": [{"id": "visual-search"}]}
    run = RunSession.create({"model": {"path": "builtin:tiny-qwen2.5-vl"}, **tables}, purpose="evaluation")
    source = VisualSearchData(DataConfig(style="plain", tools=tools, guesses=guesses))
    try:
        for one in source.demonstrations(3, seed=0):
            played = asyncio.run(episode(run, one))
            assert (shown(played), played.tools) == (shown(one), one.tools)
    finally:
        run.finished()
