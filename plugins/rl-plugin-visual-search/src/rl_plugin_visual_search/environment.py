"""The environment: a question about pictures, answered in several turns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from rlcore import EpisodeContext, Message, Observation, Step, Stop, Task, ToolCall
from rlcore.types import media_hash

from rl_plugin_visual_search.config import EnvironmentConfig
from rl_plugin_visual_search.grammar import answer_turn, parse
from rl_plugin_visual_search.observations import (
    ANSWER_FORM,
    FORM,
    ZOOM_FORM,
    problem_observation,
    result_observation,
    shown_pictures,
)
from rl_plugin_visual_search.prompts import Coordinates, Tools
from rl_plugin_visual_search.zoom import NAME, BadRegion, Zoom, zoom_schema

FORMS: dict[Tools, str] = {"code": FORM, "zoom": ZOOM_FORM, "none": ANSWER_FORM}
NO_TOOL = "code cannot be run here"


class VisualSearch:
    """Shows the pictures and the question, runs the model's code or zooms, and ends with the answer.

    The tool set is that of the task (its field ``tools``). A turn that answers ends the episode, also if it has code,
    which is then not run. Code and calls in the last turn are not executed.

    The metrics ``tool_calls``, ``tool_successes``, ``tool_errors``, ``tool_timeouts``, ``tool_resets`` and
    ``tool_images`` of a trajectory count what happened, ``idle_turns`` the turns without code, call and answer.
    """

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config = config
        self._tools: Tools = "code"
        self._images: tuple[bytes, ...] = ()
        self._context: EpisodeContext | None = None
        self._zoom = Zoom((), "pixels")
        self._turn = self._pictures = 0
        self._ended = False

    async def reset(self, task: Task, *, seed: int, context: EpisodeContext) -> Observation:
        """Show the messages of the task. A sandbox is opened when code runs for the first time."""
        by_hash = {media_hash(image): image for image in task.images}
        shown = [name for message in task.messages for name in message.images]
        names = cast(Sequence[str], task.fields.get("pictures", shown))
        self._images = tuple(by_hash[name] for name in names if name in by_hash)  # others fail when they are shown
        self._context, self._turn, self._pictures, self._ended = context, 0, len(shown), False
        self._tools = cast(Tools, task.fields.get("tools", "code"))
        if self._tools != "zoom":
            return Observation(messages=task.messages)
        coordinates = cast(Coordinates, task.fields.get("coordinates", "pixels"))
        self._zoom = Zoom(self._images, coordinates)
        return Observation(messages=task.messages, tools=(zoom_schema(coordinates),))

    async def step(self, action: Message) -> Step:
        """Run the code of the turn, or its calls, or end the episode with its answer.

        Raises:
            SandboxFailure: the sandbox failed, not the code.
        """
        self._turn += 1
        turn = parse(action.text)
        if turn.answer is not None or self._ended:
            self._ended = True
            return Step(terminated=True)
        if self._turn >= self.config.max_turns:
            self._ended = True
            return Step(truncated=True)
        if self._tools == "code" and turn.code is not None:
            return await self._run(turn.code)
        if self._tools == "zoom" and action.tool_calls:
            return await self._answer(action.tool_calls)
        problem = turn.problem if turn.code is None else NO_TOOL
        return self._after(problem_observation(problem, FORMS[self._tools]), {"idle_turns": 1.0}, failed=True)

    async def close(self) -> None:
        """Nothing to free: the context closes the sandbox."""

    def oracle(self, task: Task) -> Sequence[Message]:
        """The right answer, without looking closer."""
        return [Message(role="assistant", content=answer_turn("", str(task.fields["answer"])))]

    async def _run(self, code: str) -> Step:
        assert self._context is not None, "reset comes first"
        session = await self._context.sandbox(self._images)
        result = await session.run(code)
        shown = shown_pictures(result, self.config.max_images - self._pictures)
        self._pictures += len(shown.pictures)
        counts = {
            "tool_calls": 1.0,
            "tool_successes": float(result.ok),
            "tool_errors": float(result.status in ("error", "killed")),
            "tool_timeouts": float(result.status == "timeout"),
            "tool_resets": float(result.reset),
            "tool_images": float(len(shown.pictures)),
        }
        observation = result_observation(result, shown, loaded=len(self._images))
        return self._after(observation, counts, failed=not result.ok)

    async def _answer(self, calls: Sequence[ToolCall]) -> Step:
        messages: list[Message] = []
        images: list[bytes] = []
        failures = 0
        for call in calls:
            message, image = await self._zoomed(call)
            failures += image is None
            images += [] if image is None else [image]
            messages.append(message)
        counts = {
            "tool_calls": float(len(calls)),
            "tool_successes": float(len(images)),
            "tool_errors": float(failures),
            "tool_images": float(len(images)),
        }
        observation = Observation(messages=tuple(messages), images=tuple(dict.fromkeys(images)))
        return self._after(observation, counts, failed=failures == len(calls))

    async def _zoomed(self, call: ToolCall) -> tuple[Message, bytes | None]:
        """The answer to a call, and the new picture; None if the call is unusable."""
        if call.error is not None or call.arguments is None:
            return _refused(call, f"the call could not be read: {call.error or 'no arguments'}"), None
        if call.name != NAME:
            return _refused(call, f"there is no tool {call.name[:64]!r}. The tool is {NAME}."), None
        if self._pictures >= self.config.max_images:
            return _refused(call, f"there are {self._pictures} pictures, the largest number. Answer now."), None
        try:
            message, image = await asyncio.to_thread(self._zoom.answer, call)
        except BadRegion as error:
            return _refused(call, f"{error}."), None
        self._pictures += 1
        return message, image

    def _after(self, observation: Observation, counts: dict[str, float], *, failed: bool) -> Step:
        """Continue, unless the episode stops at a failure."""
        if failed and self.config.on_error == "stop":
            self._ended = True
            return Step(observation=observation, truncated=True, stop=Stop.TOOL_ERRORS, info=counts)
        return Step(observation=observation, info=counts)


def _refused(call: ToolCall, reason: str) -> Message:
    return Message(role="tool", content=f"Error: {reason}", name=call.name, tool_call_id=call.id)


__all__ = ["VisualSearch"]
