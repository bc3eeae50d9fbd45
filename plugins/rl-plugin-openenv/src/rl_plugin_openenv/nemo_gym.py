"""A resources server of NeMo Gym as an environment: a session, calls of its tools, and its verification."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rlcore.checks import Finding, failure_of
from rlcore.endpoints.answers import excerpt
from rlcore.endpoints.options import read_key
from rlcore.errors import EnvironmentFailure, UserError
from rlcore.event_loop import run as run_now
from rlcore.plain_json import plain, whole
from rlcore.types import Message, Observation, Step, Stop, Task, ToolCall, thaw
from rlcore.types.checking import is_finite

from rl_plugin_openenv.config import DEMO, ServerTable
from rl_plugin_openenv.environment import MOST_CALLS
from rl_plugin_openenv.http import Requests, get_json
from rl_plugin_openenv.nemo_gym_demo import demo_url
from rl_plugin_openenv.observations import LONGEST_TEXT
from rl_plugin_openenv.schemas import mistake_in, tools_of

GONE = frozenset({502, 503, 504})
"""Statuses of a server that is not there. The model sees other errors of a tool, as in NeMo Gym."""
MOST_COMPONENTS = 32


class ResourcesServer:
    """One episode. It ends with an answer without a call, or after the last turn, and is then verified.

    The conversation is sent to ``/verify`` as a response of the Responses API.
    """

    def __init__(self, config: ServerTable) -> None:
        self._config = config
        self._requests: Requests | None = None
        self._row: Mapping[str, Any] = {}
        self._output: list[dict[str, Any]] = []
        self._tools: frozenset[str] = frozenset()
        self._turns = 0
        self._ended = False

    async def reset(self, task: Task, *, seed: int) -> Observation:
        """The messages of the row, and its tools, after ``/seed_session``."""
        url = demo_url() if self._config.url == DEMO else self._config.url
        self._requests = Requests(url, read_key(self._config.api_key_env, [url], keys="environment."))
        self._row = plain(thaw(task.fields["row"]))
        listed = self._row["responses_create_params"].get("tools")
        tools = tools_of(listed) if listed else ()
        self._tools = frozenset(tool.name for tool in tools)
        self._requests.read("/seed_session", await self._requests.post("/seed_session", self._row))
        return Observation(messages=task.messages, tools=tools)

    async def step(self, action: Message) -> Step:
        """The answers to the calls of a message. The last step has the reward of the verification."""
        if self._requests is None or self._ended:
            raise RuntimeError("the episode is over")
        self._turns += 1
        if action.text or not action.tool_calls:
            self._output.append(_said(action.text, self._turns))
        calls = action.tool_calls[:MOST_CALLS]
        messages = tuple([await self._answer(self._requests, call, number) for number, call in enumerate(calls)])
        last = self._turns >= self._config.max_turns
        observation = Observation(messages=messages)
        if calls and not last:
            return Step(observation=observation, info={"tool_calls": float(len(action.tool_calls))})
        self._ended = True
        reward, info = await self._verified(self._requests)
        return Step(
            observation=observation,
            reward=reward,
            terminated=not calls,
            truncated=bool(calls),
            stop=Stop.MAX_TURNS if calls else None,
            info={**info, "tool_calls": float(len(action.tool_calls))},
        )

    async def cut(self, written: Message | None) -> Step:
        """Verify an episode that ends at a token limit, with the answer that was cut."""
        return await self.step(Message(role="assistant", content=written.text if written is not None else ""))

    async def close(self) -> None:
        """Close the connection. NeMo Gym has no request that ends a session."""
        if self._requests is not None:
            await self._requests.close()

    async def _answer(self, requests: Requests, call: ToolCall, number: int) -> Message:
        """What a tool answers."""
        arguments = plain(thaw(call.arguments)) if call.arguments is not None else {}
        text = mistake_in(call, self._tools)
        if not text:
            response = await requests.post(f"/{call.name}", arguments)
            if response.status in GONE:
                raise requests.failure(f"/{call.name}", f"status {response.status}: {excerpt(response.body)}")
            text = response.body.decode("utf-8", "replace")
            if len(text) > LONGEST_TEXT:
                raise requests.failure(f"/{call.name}", f"its answer has more than {LONGEST_TEXT:,} characters")
        id = f"call_{self._turns}_{number}"
        made = {"call_id": id, "name": whole(call.name), "arguments": json.dumps(arguments)}
        self._output.append({"type": "function_call", "id": f"fc_{id}", "status": "completed", **made})
        self._output.append({"type": "function_call_output", "call_id": id, "output": whole(text)})
        return Message(role="tool", content=whole(text), name=call.name, tool_call_id=call.id)

    async def _verified(self, requests: Requests) -> tuple[float, dict[str, float]]:
        """The reward of the episode, and its components."""
        asked = self._row["responses_create_params"]
        response = {
            "id": "resp_0",
            "object": "response",
            "created_at": 0.0,
            "model": "policy",
            "output": self._output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": asked.get("tools") or [],
        }
        answer = requests.read("/verify", await requests.post("/verify", {**self._row, "response": response}))
        reward = answer.get("reward") if isinstance(answer, dict) else None
        if not isinstance(reward, (int, float)) or not is_finite(reward):
            raise EnvironmentFailure(f"/verify of the NeMo Gym server returned the reward {excerpt(repr(reward))}")
        components = answer.get("reward_components")
        named = list(components.items())[:MOST_COMPONENTS] if isinstance(components, dict) else []
        return float(reward), {f"component/{whole(name)[:64]}": value for name, value in named if is_finite(value)}


def _said(text: str, turn: int) -> dict[str, Any]:
    content = [{"type": "output_text", "text": whole(text), "annotations": []}]
    return {"type": "message", "id": f"msg_{turn}", "role": "assistant", "status": "completed", "content": content}


def check(run: Any, environment: Any) -> Iterator[Finding]:
    """Reject a run whose server cannot be reached before the run starts."""
    config = environment.options
    if config.url == DEMO:
        return
    try:
        key = read_key(config.api_key_env, [config.url], keys="environment.")
        run_now(get_json(f"{config.url}/reverify_mode", key))
    except UserError as error:
        yield failure_of(error, "environment.api_key_env")
    except EnvironmentFailure as error:
        fix = "start the resources server, or correct environment.url"
        yield Finding(status="fail", key="environment.url", text=str(error), fix=fix)


__all__ = ["ResourcesServer", "check"]
