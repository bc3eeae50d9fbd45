"""Messages of the chat-completions API as values of rlcore, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from rlcore.errors import EpisodeEnded
from rlcore.harnesses import EpisodePolicy
from rlcore.types import Message, Response, Role, ToolCall, ToolSchema, thaw

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


async def answer(policy: EpisodePolicy, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The policy's answer to the body of a request: a ``body``, ``ended``, or why it was ``refused``."""
    try:
        messages = [read_message(message) for message in body["messages"]]
        tools = [_tool(tool["function"]) for tool in body.get("tools") or ()]
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        sampling = {"max_new_tokens": limit} if isinstance(limit, int) and limit > 0 else {}
        response = await policy.respond(messages, tools=tools, sampling=sampling)
    except EpisodeEnded:
        return {"ended": True}
    except (KeyError, TypeError, AttributeError) as error:
        return {"refused": f"the request has no valid messages and tools ({type(error).__name__}: {error})"}
    except ValueError as error:
        return {"refused": str(error)}
    return {"body": _completion(response)}


def read_message(message: Mapping[str, Any]) -> Message:
    """A message of a request. Raises `ValueError` for an image."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        if any(part["type"] != "text" for part in content):
            raise ValueError("the taskset sends images or files, and only text is supported")
        content = "".join(part["text"] for part in content)
    return Message(
        role=cast(Role, ROLES[message["role"]]),
        content=content,
        tool_calls=tuple(_call(call) for call in message.get("tool_calls") or ()),
        name=message.get("name"),
        tool_call_id=message.get("tool_call_id"),
    )


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = call["function"]
    return ToolCall(name=function["name"], arguments=json.loads(function["arguments"] or "{}"), id=call["id"])


def _tool(function: Mapping[str, Any]) -> ToolSchema:
    return ToolSchema(
        name=function["name"],
        description=function.get("description") or "",
        parameters=function.get("parameters") or {"type": "object", "properties": {}},
    )


def _completion(response: Response) -> dict[str, Any]:
    completion = response.completion
    said = completion.message
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    if said.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(thaw(call.arguments or {}))},
            }
            for call in said.tool_calls
        ]
    reason = "tool_calls" if said.tool_calls else completion.finish_reason
    prompt, sampled = completion.prompt_tokens or 0, completion.completion_tokens or 0
    return {
        "id": f"turn-{response.turn}",
        "object": "chat.completion",
        "created": 0,
        "model": "policy",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled},
    }
