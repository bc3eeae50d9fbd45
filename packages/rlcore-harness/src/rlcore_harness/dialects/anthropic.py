"""The dialect of ``/v1/messages``, Anthropic's API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlcore.types import Message, Response, ToolCall, ToolSchema, thaw

from rlcore_harness.dialects.request import (
    MOST_MESSAGES,
    MOST_TOOLS,
    Refusal,
    Request,
    event,
    flag,
    items,
    name,
    read_content,
    read_sampling,
    read_tool,
    refuse_tool_choice,
    refuse_unsupported,
    table,
    usage,
)

UNREADABLE = "unreadable"
"""The key of arguments that are not JSON."""
ERRORS = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
}


def read(body: Mapping[str, Any]) -> Request:
    """The request of a body. Raises `Refusal`."""
    refuse_unsupported(body)
    refuse_unsupported({"output_format": table(body.get("output_config") or {}, "output_config").get("format")})
    images: list[bytes] = []
    tools = tuple(
        _tool(table(tool, f"tools[{index}]"), f"tools[{index}]")
        for index, tool in enumerate(items(body.get("tools") or [], "tools", MOST_TOOLS))
    )
    refuse_tool_choice(body.get("tool_choice"), tools)
    messages = list(_system(body.get("system")))
    for index, message in enumerate(items(body.get("messages"), "messages", MOST_MESSAGES)):
        messages += _messages(table(message, f"messages[{index}]"), f"messages[{index}]", images)
    return Request(
        messages=tuple(messages),
        tools=tools,
        images=tuple(images),
        sampling=read_sampling(body, "max_tokens", stop="stop_sequences"),
        model=name(body.get("model") or "policy", "model"),
        stream=flag(body, "stream"),
    )


def answer(request: Request, responses: Sequence[Response]) -> dict[str, Any]:
    """The body of the answer."""
    completion = responses[0].completion
    message, (prompt, written) = completion.message, usage(responses)
    content: list[dict[str, Any]] = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)} for call in message.tool_calls
    ]
    if message.text or not content:
        content.insert(0, {"type": "text", "text": message.text, "citations": None})
    return {
        "id": f"msg_{request.id}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_reason": _reason(responses[0]),
        "stop_sequence": None,
        "usage": {
            "input_tokens": prompt,
            "output_tokens": written,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }


def events(request: Request, responses: Sequence[Response]) -> Iterator[bytes]:
    """The answer as server-sent events: the message, each of its blocks, and its end."""
    for data in _events(answer(request, responses)):
        yield event(data, data["type"])


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 0}}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": message["usage"]["output_tokens"]}}
    yield {"type": "message_stop"}


def error(status: int, message: str, code: str | None) -> dict[str, Any]:
    """The body of an error."""
    return {"type": "error", "error": {"type": ERRORS.get(status, "invalid_request_error"), "message": message}}


def _system(value: object) -> Iterator[Message]:
    """The system message. Its blocks are paragraphs."""
    images: list[bytes] = []
    if isinstance(value, list):
        blocks = [read_content([block], f"system[{index}]", images) for index, block in enumerate(value)]
        value = "\n\n".join(block for block in blocks if isinstance(block, str))
    if images:
        raise Refusal("system has an image; images belong to messages")
    if value:
        yield Message(role="system", content=read_content(value, "system", images))


def _messages(value: Mapping[str, Any], where: str, images: list[bytes]) -> Iterator[Message]:
    """The messages of a message: each result of a tool has its own."""
    role, content = value.get("role"), value.get("content")
    if role not in ("user", "assistant", "system"):
        raise Refusal(f"{where}.role must be user or assistant")
    if not isinstance(content, list):
        content = [{"type": "text", "text": content}]
    others, calls = list[Any](), list[ToolCall]()
    for index, item in enumerate(content):
        place = f"{where}.content[{index}]"
        block = table(item, place)
        if block.get("type") == "tool_use" and role == "assistant":
            calls.append(_call(block, place))
        elif block.get("type") == "tool_result" and role == "user":
            result = read_content(block.get("content"), f"{place}.content", images)
            yield Message(
                role="tool", content=result, tool_call_id=name(block.get("tool_use_id"), f"{place}.tool_use_id")
            )
        else:
            others.append(block)
    if others or role == "assistant" or not content:
        said = read_content(others, f"{where}.content", images)
        yield Message(role=role, content=said, tool_calls=tuple(calls))


def _call(block: Mapping[str, Any], where: str) -> ToolCall:
    id, called = name(block.get("id"), f"{where}.id"), name(block.get("name"), f"{where}.name")
    given = table(block.get("input"), f"{where}.input")
    if set(given) == {UNREADABLE} and isinstance(given[UNREADABLE], str):
        return ToolCall(id=id, name=called, error=given[UNREADABLE])
    return ToolCall(id=id, name=called, arguments=given)


def _input(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call. This API has no form for unreadable ones; `_call` is the inverse."""
    return {UNREADABLE: call.error or ""} if call.arguments is None else thaw(call.arguments)


def _tool(value: Mapping[str, Any], where: str) -> ToolSchema:
    if value.get("type") not in (None, "custom"):
        raise Refusal(f"{where}.type must be custom, because the agent calls its tools itself")
    return read_tool(value, where, "input_schema")


def _reason(response: Response) -> str:
    completion = response.completion
    if completion.message.tool_calls:
        return "tool_use"
    return "max_tokens" if completion.finish_reason == "length" else "end_turn"
