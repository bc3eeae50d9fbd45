"""Sessions of an rlcore environment in the words of OpenEnv: reset, step, state."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore.contracts import Environment
from rlcore.episodes.calls import CallFailed, call
from rlcore.episodes.context import EpisodeContext, takes_context
from rlcore.images import data_uri
from rlcore.plain_json import plain
from rlcore.testing import make_trajectory
from rlcore.types import ImagePart, Message, Observation, Step, Task, ToolCall, ToolSchema, Trajectory
from rlcore.types.checking import flaw_in_observation, flaw_in_step, is_finite

ACTION = {
    "title": "Answer",
    "description": "The answer of the model.",
    "type": "object",
    "properties": {"message": {"type": "string"}, "metadata": {"type": "object", "default": {}}},
    "required": ["message"],
    "additionalProperties": False,
}
OBSERVATION = {
    "title": "Answered",
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "images": {"type": "array", "items": {"type": "string"}, "description": "Data URIs."},
        "done": {"type": "boolean"},
        "reward": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "metadata": {"type": "object"},
    },
}
STATE = {
    "title": "State",
    "type": "object",
    "properties": {"episode_id": {"type": "string"}, "step_count": {"type": "integer"}, "task_id": {"type": "string"}},
}
LARGEST_SEED = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a server offers."""

    name: str
    description: str
    tasks: Sequence[Task]
    make: Callable[[], Environment]
    """Creates an environment for one episode."""
    score: Callable[[Trajectory, Task], Awaitable[float | None]]
    """The reward of an episode; None if it is not scored."""
    blocking: bool = False
    """Whether the environment's plain methods run in threads."""
    timeout_s: float = 60.0
    """Time limit of a call."""


class Refused(Exception):
    """A request that is not answered.

    Attributes:
        code: as in ``WSErrorCode`` of OpenEnv
        errors: what is wrong with an action
    """

    def __init__(self, code: str, message: str, errors: Sequence[Mapping[str, Any]] = ()) -> None:
        self.code, self.errors = code, errors
        super().__init__(message)


class PublishedSession:
    """The episodes of one client, one after the other."""

    def __init__(self, published: Published) -> None:
        self._published = published
        self._environment: Environment | None = None
        self._context: EpisodeContext | None = None
        self._tools: tuple[ToolSchema, ...] = ()
        self._messages: list[Message] = []
        self._images: list[bytes] = []
        self._totals: dict[str, float] = {}
        self._state: dict[str, Any] = {"episode_id": None, "step_count": 0, "task_id": None}
        self._ended = True

    def state(self) -> Mapping[str, Any]:
        """The number of steps of the episode, and its task."""
        return self._state

    async def reset(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Start an episode. ``seed`` selects the task; ``task_id`` names it.

        Raises:
            Refused: there is no such task, or the environment failed.
        """
        await self.close()
        seed = given.get("seed")
        if seed is not None and not (type(seed) is int and 0 <= seed < LARGEST_SEED):
            raise Refused("VALIDATION_ERROR", "Invalid message", [_wrong("seed", "must be an integer of at least 0")])
        seed = random.randrange(2**31) if seed is None else seed
        task = self._task(seed, given.get("task_id"))
        self._context = EpisodeContext(task, seed=seed)
        self._environment = await self._ask(self._published.make)
        declared = {"context": self._context} if takes_context(self._environment.reset) else {}
        first: Observation = await self._ask(self._environment.reset, task, seed=seed, **declared)
        _expect(first, Observation, flaw_in_observation(first) if isinstance(first, Observation) else None)
        self._tools, self._messages, self._images, self._totals = first.tools, [], list(task.images), {}
        episode = given.get("episode_id")
        self._state = {
            "episode_id": episode if isinstance(episode, str) else f"{task.id}-{seed}",
            "step_count": 0,
            "task_id": task.id,
        }
        self._ended = False
        return {"observation": self._shown(first), "reward": None, "done": False}

    async def step(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give the environment an answer, or a call of a tool. The last step has the reward of the episode.

        Raises:
            Refused: the action is invalid, the episode is over, or the environment failed.
        """
        if data.get("type") == "list_tools":
            tools = [
                {"name": one.name, "description": one.description, "input_schema": plain(one.parameters)}
                for one in self._tools
            ]
            return {"observation": {"tools": tools}, "reward": None, "done": self._ended}
        action = _action(data)
        if self._ended or self._environment is None or self._context is None:
            raise Refused("EXECUTION_ERROR", "the episode is over, or has not begun: reset it")
        self._messages.append(action)
        self._state = {**self._state, "step_count": self._state["step_count"] + 1}
        step: Step = await self._ask(self._environment.step, action)
        _expect(step, Step, flaw_in_step(step) if isinstance(step, Step) else None)
        self._count(step)
        content = self._shown(step.observation)
        if action.tool_calls:
            content = _called(action.tool_calls[0].name, content)
        self._ended = step.terminated or step.truncated or step.stop is not None
        reward = await self._scored(step) if self._ended else None
        if self._ended:
            content = {**content, "metadata": {"stop": str(step.stop or ("max_turns" if step.truncated else "done"))}}
        return {"observation": content, "reward": reward, "done": self._ended}

    async def close(self) -> None:
        """Close the environment of the episode. A second call does nothing."""
        environment, self._environment, self._ended = self._environment, None, True
        context, self._context = self._context, None
        try:
            if environment is not None:
                await self._ask(environment.close)
        finally:
            if context is not None:
                await context.aclose()

    def _task(self, seed: int, task_id: object) -> Task:
        tasks = self._published.tasks
        if task_id is None:
            return tasks[seed % len(tasks)]
        for task in tasks:
            if task.id == task_id:
                return task
        raise Refused("EXECUTION_ERROR", f"there is no task {str(task_id)[:80]!r}")

    async def _ask(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        name, published = getattr(function, "__name__", "a call"), self._published
        try:
            return await call(
                name, function, *arguments, timeout_s=published.timeout_s, threaded=published.blocking, **keywords
            )
        except CallFailed as failed:
            self._ended = True
            raise Refused("EXECUTION_ERROR", str(failed)) from failed

    def _shown(self, observation: Observation) -> dict[str, Any]:
        """The new messages as the fields of an observation."""
        self._messages += observation.messages
        self._images += observation.images
        text = "\n\n".join(filter(None, (message.text for message in observation.messages)))
        provided = {ImagePart.of(image).sha256: image for image in self._images}
        names = [name for message in observation.messages for name in message.images]
        images = [data_uri(provided[name]) for name in names if name in provided]
        return {"text": text, **({"images": images} if images else {})}

    def _count(self, step: Step) -> None:
        rewards = {} if step.reward is None else {"step_reward": step.reward}
        for name, value in {**step.info, **rewards}.items():
            if is_finite(value):
                self._totals[name] = self._totals.get(name, 0.0) + float(value)

    async def _scored(self, step: Step) -> float | None:
        assert self._context is not None
        trajectory = make_trajectory(
            *self._messages, task_id=self._context.task.id, tools=self._tools, images=self._images, metrics=self._totals
        )
        return await self._published.score(trajectory, self._context.task)


def _action(data: Mapping[str, Any]) -> Message:
    """The answer, or the call of a tool. Raises `Refused`."""
    if data.get("type") == "call_tool":
        name, arguments = data.get("tool_name"), data.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise Refused("VALIDATION_ERROR", "Invalid message", [_wrong("tool_name", "needs a name and arguments")])
        return Message(role="assistant", tool_calls=(ToolCall(name=name, arguments=arguments, id="0"),))
    if not isinstance(text := data.get("message"), str):
        raise Refused("VALIDATION_ERROR", "Invalid message", [_wrong("message", "must be a text")])
    if unknown := sorted(set(data) - {"message", "metadata"}):
        raise Refused("VALIDATION_ERROR", "Invalid message", [_wrong(unknown[0], "is not a field of the action")])
    return Message(role="assistant", content=text)


def _called(name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """The observation of a call: its text, or parts if there are images."""
    if "images" not in content:
        return {"tool_name": name, "result": content["text"], "error": None}
    images = [uri.removeprefix("data:").partition(";base64,") for uri in content["images"]]
    parts = [{"type": "text", "text": content["text"]}]
    parts += [{"type": "image", "mimeType": kind, "data": data} for kind, _, data in images]
    return {"tool_name": name, "result": {"content": parts}, "error": None}


def _wrong(field: str, text: str) -> dict[str, Any]:
    return {"loc": [field], "msg": text, "type": "value_error"}


def _expect(value: object, kind: type, flaw: str | None) -> None:
    if not isinstance(value, kind) or flaw:
        found = flaw or type(value).__name__
        raise Refused("EXECUTION_ERROR", f"the environment must return a {kind.__name__}, it returned {found}")


__all__ = ["ACTION", "OBSERVATION", "STATE", "Published", "PublishedSession", "Refused"]
