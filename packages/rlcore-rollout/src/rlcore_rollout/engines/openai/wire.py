"""Conversion of messages to and from the chat-completions API. Responses are not trusted to be well-formed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlcore.endpoints.answers import Answer, writable
from rlcore.images import data_uri
from rlcore.types import ChatCompletion, FrozenDict, Message, TextPart, ToolCall

from rlcore_rollout.parsers.calls import BadJson, bad_call, call_of, read_json, to_json

EXPECTED = "the arguments as one JSON object"


def to_wire(messages: Sequence[Message], images: Mapping[str, bytes] = FrozenDict()) -> list[dict[str, Any]]:
    """The messages of a request, with images as data URIs.

    An unreadable call is sent without arguments; the tool's answer has the reason.
    """
    return [_message_to_wire(message, images) for message in messages]


def _message_to_wire(message: Message, images: Mapping[str, bytes]) -> dict[str, Any]:
    content = _content_to_wire(message, images)
    if message.role == "tool":
        if message.tool_call_id:
            return {"role": "tool", "tool_call_id": message.tool_call_id, "content": content}
        return {"role": "user", "content": content}  # an answer to no call, which endpoints refuse as a tool's
    if not message.tool_calls:
        return {"role": message.role, "content": content}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": writable(call.name) or "unreadable",
                "arguments": writable(to_json(call.arguments or {})),
            },
        }
        for call in message.tool_calls
    ]
    return {"role": message.role, "content": content or None, "tool_calls": calls}


def _content_to_wire(message: Message, images: Mapping[str, bytes]) -> str | list[dict[str, Any]]:
    """One text, or parts where there are images."""
    if isinstance(message.content, str) or not message.images:
        return writable(message.text)
    return [
        {"type": "text", "text": writable(part.text)}
        if isinstance(part, TextPart)
        else {"type": "image_url", "image_url": {"url": data_uri(images[part.sha256])}}
        for part in message.content
    ]


def completion_of(answer: Answer) -> ChatCompletion:
    """An answer as a completion. Text truncated by the token limit has no calls."""
    calls = () if answer.truncated else tuple(_call(item, index) for index, item in enumerate(answer.tool_calls))
    return ChatCompletion(
        message=Message(role="assistant", content=answer.text, tool_calls=calls),
        finish_reason="length" if answer.truncated else "stop",
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
    )


def _call(item: object, index: int) -> ToolCall:
    """One call with the endpoint's id; an unreadable one has the reason in ``error``, as from the parsers of text."""
    function = item.get("function") if isinstance(item, dict) else None
    value = dict(function) if isinstance(function, dict) else function
    name = value.get("name") if isinstance(value, dict) else None
    arguments = value.get("arguments") if isinstance(value, dict) else None
    if isinstance(value, dict) and (arguments is None or arguments == ""):
        value["arguments"] = {}
    elif isinstance(value, dict) and isinstance(arguments, str):
        try:
            value["arguments"], end = read_json(arguments, 0)
            if arguments[end:].strip():
                raise BadJson(f"unexpected text after the JSON at character {end}")
        except BadJson as error:
            problem = f"the arguments are not valid JSON: {error}"
            value = bad_call(problem, index=index, expected=EXPECTED, name=name if isinstance(name, str) else "")
    call = value if isinstance(value, ToolCall) else call_of(value, index=index, expected=EXPECTED)
    given = item.get("id") if isinstance(item, dict) else None
    call = replace(call, name=writable(call.name))
    return replace(call, id=writable(given)) if isinstance(given, str) and given else call
