"""The dialect of ``/v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlcore.types import Message, Response, ToolCall

from rlcore_harness.dialects.request import (
    MOST_CHOICES,
    MOST_MESSAGES,
    MOST_TOOLS,
    Refusal,
    Request,
    event,
    flag,
    items,
    name,
    read_call,
    read_content,
    read_sampling,
    read_tool,
    refuse_tool_choice,
    refuse_unsupported,
    table,
    usage,
    whole,
    written,
)

ERRORS = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error"}


def read(body: Mapping[str, Any]) -> Request:
    """The request of a body. Raises `Refusal`."""
    refuse_unsupported(body)
    images: list[bytes] = []
    tools = tuple(
        _tool(table(tool, f"tools[{index}]"), f"tools[{index}]")
        for index, tool in enumerate(items(body.get("tools") or [], "tools", MOST_TOOLS))
    )
    refuse_tool_choice(body.get("tool_choice"), tools)
    return Request(
        messages=tuple(
            _message(table(message, f"messages[{index}]"), f"messages[{index}]", images)
            for index, message in enumerate(items(body.get("messages"), "messages", MOST_MESSAGES))
        ),
        tools=tools,
        images=tuple(images),
        sampling=read_sampling(body, "max_tokens", "max_completion_tokens"),
        model=name(body.get("model") or "policy", "model"),
        count=whole(body, "n", 1, MOST_CHOICES) or 1,
        stream=flag(body, "stream"),
        stream_usage=flag(table(body.get("stream_options") or {}, "stream_options"), "include_usage"),
    )


def answer(request: Request, responses: Sequence[Response]) -> dict[str, Any]:
    """The body of the answer."""
    choices = [
        {
            "index": index,
            "message": {**_said(response.completion.message), "refusal": None, "annotations": []},
            "logprobs": None,
            "finish_reason": _reason(response),
        }
        for index, response in enumerate(responses)
    ]
    return {**_head(request, "chat.completion"), "choices": choices, "usage": _usage(responses)}


def events(request: Request, responses: Sequence[Response]) -> Iterator[bytes]:
    """The answer as server-sent events: for each choice its text, its calls and its end."""
    head = _head(request, "chat.completion.chunk")
    for index, response in enumerate(responses):
        said = _said(response.completion.message)
        calls = [{"index": place, **call} for place, call in enumerate(said.pop("tool_calls", []))]
        deltas: list[tuple[dict[str, Any], str | None]] = [(said, None), ({}, _reason(response))]
        if calls:
            deltas.insert(1, ({"tool_calls": calls}, None))
        for delta, reason in deltas:
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
            yield event({**head, "choices": [choice]})
    if request.stream_usage:
        yield event({**head, "choices": [], "usage": _usage(responses)})
    yield b"data: [DONE]\n\n"


def error(status: int, message: str, code: str | None) -> dict[str, Any]:
    """The body of an error."""
    kind = ERRORS.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _message(value: Mapping[str, Any], where: str, images: list[bytes]) -> Message:
    role, content = value.get("role"), read_content(value.get("content"), f"{where}.content", images)
    if role in ("system", "developer"):
        return Message(role="system", content=content)
    if role == "user":
        return Message(role="user", content=content)
    if role == "tool":
        return Message(
            role="tool", content=content, tool_call_id=name(value.get("tool_call_id"), f"{where}.tool_call_id")
        )
    if role != "assistant":
        raise Refusal(f"{where}.role must be system, developer, user, assistant or tool")
    calls = items(value.get("tool_calls") or [], f"{where}.tool_calls", MOST_TOOLS)
    read_calls = (_call(table(call, where), f"{where}.tool_calls[{index}]") for index, call in enumerate(calls))
    return Message(role="assistant", content=content, tool_calls=tuple(read_calls))


def _call(value: Mapping[str, Any], where: str) -> ToolCall:
    function = table(value.get("function"), f"{where}.function")
    return read_call(value.get("id"), function.get("name"), function.get("arguments"), where)


def _tool(value: Mapping[str, Any], where: str) -> Any:
    if value.get("type") != "function":
        raise Refusal(f"{where}.type must be function, because the agent calls its tools itself")
    return read_tool(table(value.get("function"), f"{where}.function"), f"{where}.function")


def _head(request: Request, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{request.id}", "object": kind, "created": request.created, "model": request.model}


def _said(message: Message) -> dict[str, Any]:
    """The assistant's message."""
    if not message.tool_calls:
        return {"role": "assistant", "content": message.text}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": written(call)}}
        for call in message.tool_calls
    ]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def _reason(response: Response) -> str:
    completion = response.completion
    return "tool_calls" if completion.message.tool_calls else completion.finish_reason


def _usage(responses: Sequence[Response]) -> dict[str, int]:
    prompt, completion = usage(responses)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
