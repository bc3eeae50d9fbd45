"""The environment of an OpenEnv server as a chat."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from rlcore.checks import Finding, failure_of
from rlcore.endpoints.answers import excerpt
from rlcore.endpoints.options import read_key
from rlcore.errors import EnvironmentFailure, UserError
from rlcore.event_loop import run as run_now
from rlcore.plain_json import plain, whole
from rlcore.types import Message, Observation, Step, Stop, Task, ToolCall, ToolSchema, thaw

from rl_plugin_openenv.config import DEMO, EnvironmentConfig
from rl_plugin_openenv.http import get_json
from rl_plugin_openenv.observations import Shown, Viewer, message_of, observation_of
from rl_plugin_openenv.schemas import (
    Action,
    CallAction,
    FormAction,
    TextAction,
    action_of,
    mistake_in,
    tools_of,
)
from rl_plugin_openenv.session import Rejected, Session

MOST_CALLS = 16
"""Calls of one turn that are sent to the server, one after the other."""
INVALID = "VALIDATION_ERROR"
_actions: dict[str, Action] = {}
"""The action of each server, by its URL: it is read once in a process."""


class OpenEnvChat:
    """One episode on an OpenEnv server. Its answers are messages, and the answer of the model is the action.

    A server whose action is a single text gets the answer. A server in the manner of MCP lists tools, which the model
    calls until it answers without a call. The action of any other server becomes the only tool, ``act``.
    """

    pictures: ClassVar[bool] = False

    def __init__(self, config: EnvironmentConfig) -> None:
        self._config = config
        self._viewer = Viewer(config.show, pictures=self.pictures)
        self._session: Session | None = None
        self._action: Action = CallAction()
        self._tools: frozenset[str] = frozenset()
        self._turns = 0
        self._ended = False

    async def reset(self, task: Task, *, seed: int) -> Observation:
        """The messages of the task and the first observation. The server gets the seed of the task."""
        config = self._config
        url = _demo() if config.url == DEMO else config.url
        key = read_key(config.api_key_env, [url], keys="environment.")
        self._action = await _known_action(url, key)
        self._session = Session(url, key)
        arguments = thaw(task.fields.get("reset", {}))
        first = await self._session.reset({**arguments, "seed": int(task.fields.get("seed", seed))})
        content, _, done = _result_of(first)
        if done:
            raise EnvironmentFailure(f"the OpenEnv server ended the episode at its reset: {excerpt(repr(content))}")
        tools: tuple[ToolSchema, ...] = (self._action.tool,) if isinstance(self._action, FormAction) else ()
        if isinstance(self._action, CallAction):
            listed, _, _ = _result_of(await self._session.ask("step", {"type": "list_tools"}))
            tools = tools_of(listed.get("tools"))
        self._tools = frozenset(tool.name for tool in tools)
        shown = self._viewer.shown(content)
        if not task.messages and not shown.text and not shown.images:
            raise EnvironmentFailure("the first observation shows nothing: set data.prompt, or environment.show")
        seen = observation_of((message_of(shown), shown)) if shown.text or shown.images else Observation(messages=())
        return Observation(messages=(*task.messages, *seen.messages), tools=tools, images=(*task.images, *seen.images))

    async def step(self, action: Message) -> Step:
        """What the server answers, with the reward of the turn, which is None if the server gives none."""
        if self._session is None or self._ended:
            raise RuntimeError("the episode is over")
        self._turns += 1
        if isinstance(self._action, TextAction):
            step = await self._said(self._session, {self._action.field: whole(action.text)})
        elif action.tool_calls:
            step = await self._called(self._session, action.tool_calls[:MOST_CALLS], len(action.tool_calls))
        elif isinstance(self._action, FormAction):
            text = f"There is no action in the answer. Call the tool {self._action.tool.name}."
            step = Step(observation=Observation(messages=(Message(role="user", content=text),)))
        else:
            step = Step(terminated=True)
        if not step.terminated and self._turns >= self._config.max_turns:
            step = Step(
                observation=step.observation, reward=step.reward, truncated=True, stop=Stop.MAX_TURNS, info=step.info
            )
        self._ended = step.terminated or step.truncated
        return step

    async def cut(self, written: Message | None) -> Step:
        """Send an answer that a token limit cut, if answers are the server's actions. Without a reward, it is 0."""
        step = Step(truncated=True)
        if written is not None and isinstance(self._action, TextAction):
            step = await self.step(written)
        return step if step.reward is not None else replace(step, reward=0.0)

    async def close(self) -> None:
        """End the session on the server."""
        if self._session is not None:
            await self._session.close()

    async def _said(self, session: Session, data: Mapping[str, Any]) -> Step:
        try:
            content, reward, done = _result_of(await session.ask("step", data))
        except Rejected as rejected:
            text = _explained(rejected)
            return Step(observation=Observation(messages=(Message(role="user", content=text),)), info={"rejected": 1.0})
        shown = self._viewer.shown(content)
        return Step(observation=observation_of((message_of(shown), shown)), reward=reward, terminated=done)

    async def _called(self, session: Session, calls: tuple[ToolCall, ...], count: int) -> Step:
        """The answers to calls. Those after the end of the episode are not sent."""
        pairs, rewards, done, rejected = list[tuple[Message, Shown]](), list[float](), False, 0
        for call in calls:
            if done:
                shown = Shown(["The episode is over."])
            else:
                try:
                    shown, reward, done = await self._answer(session, call)
                    rewards += [reward] if reward is not None else []
                except Rejected as error:
                    shown, rejected = Shown([_explained(error)]), rejected + 1
            pairs.append((message_of(shown, "tool", name=call.name, tool_call_id=call.id), shown))
        if count > len(calls):
            shown = Shown([f"Only the first {MOST_CALLS} of {count} calls were made."])
            pairs.append((message_of(shown), shown))
        return Step(
            observation=observation_of(*pairs),
            reward=sum(rewards) if rewards else None,
            terminated=done,
            info={"tool_calls": float(count), "rejected": float(rejected)},
        )

    async def _answer(self, session: Session, call: ToolCall) -> tuple[Shown, float | None, bool]:
        """What a call shows, its reward, and whether the episode is over. Raises `Rejected` for an invalid call."""
        if mistake := mistake_in(call, self._tools):
            return Shown([mistake]), None, False
        arguments = plain(thaw(call.arguments))
        if isinstance(self._action, FormAction):
            content, reward, done = _result_of(await session.ask("step", arguments))
            return self._viewer.shown(content), reward, done
        data = {"type": "call_tool", "tool_name": call.name, "arguments": arguments}
        content, reward, done = _result_of(await session.ask("step", data))
        if content.get("error"):
            error = content["error"]
            said = error.get("message") if isinstance(error, Mapping) else error
            return Shown([f"Error: {excerpt(str(said))}"]), reward, done
        shown = self._viewer.result(content["result"]) if "result" in content else self._viewer.shown(content)
        return shown, reward, done


class OpenEnvPictures(OpenEnvChat):
    """The same with the images of observations."""

    pictures = True


def _demo() -> str:
    from rl_plugin_openenv.demo import demo_url  # here, because other runs need no server

    return demo_url()


def _explained(rejected: Rejected) -> str:
    """A message to the model about an action that does not fit its schema. Other errors fail the episode."""
    if rejected.code != INVALID:
        raise rejected
    return f"Error: the action is invalid: {rejected.details or 'it does not fit its schema'}"


def _result_of(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], float | None, bool]:
    """Observation, reward and end of an answer.

    Raises:
        EnvironmentFailure: a part has the wrong type.
    """
    content, reward, done = data.get("observation"), data.get("reward"), data.get("done")
    if not isinstance(content, Mapping):
        raise EnvironmentFailure(f"the OpenEnv server sent an observation that is no object: {excerpt(repr(content))}")
    if not isinstance(done, bool):
        raise EnvironmentFailure(f"the OpenEnv server sent done={excerpt(repr(done))}, which must be true or false")
    if reward is None:
        return content, None, done
    if not isinstance(reward, (bool, int, float)) or not math.isfinite(_number(reward)):
        raise EnvironmentFailure(f"the OpenEnv server sent the reward {excerpt(repr(reward))}, which is not a number")
    return content, float(reward), done


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond the range of a float
        return math.inf


async def _known_action(url: str, key: str | None) -> Action:
    """The action of a server. Raises `EnvironmentFailure` if it does not say."""
    if url not in _actions:
        schemas = await get_json(f"{url}/schema", key)
        _actions[url] = action_of(schemas.get("action") if isinstance(schemas, Mapping) else None)
    return _actions[url]


def check(run: Any, environment: Any) -> Iterator[Finding]:
    """Reject a run whose server cannot be used before the run starts."""
    config = environment.options
    if config.url == DEMO:
        return
    try:
        key = read_key(config.api_key_env, [config.url], keys="environment.")
        run_now(_known_action(config.url, key))
    except UserError as error:
        yield failure_of(error, "environment.api_key_env")
    except EnvironmentFailure as error:
        fix = "start the server, or correct environment.url"
        yield Finding(status="fail", key="environment.url", text=str(error), fix=fix)


__all__ = ["OpenEnvChat", "OpenEnvPictures", "check"]
