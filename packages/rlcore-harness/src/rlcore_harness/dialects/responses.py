"""The dialect of ``/v1/responses``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlcore.types import Message, Response, ToolSchema

from rlcore_harness.dialects import chat
from rlcore_harness.dialects.request import (
    MOST_MESSAGES,
    MOST_TOOLS,
    THOUGHTS,
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
    text,
    usage,
    written,
)

error = chat.error


def read(body: Mapping[str, Any]) -> Request:
    """The request of a body. Raises `Refusal`."""
    refuse_unsupported(body, stop=([], "OpenAI's Responses API has no stop texts; use /v1/chat/completions"))
    output = table(body.get("text") or {}, "text")
    refuse_unsupported({"response_format": output.get("format")})
    images: list[bytes] = []
    tools = tuple(
        _tool(table(tool, f"tools[{index}]"), f"tools[{index}]")
        for index, tool in enumerate(items(body.get("tools") or [], "tools", MOST_TOOLS))
    )
    refuse_tool_choice(body.get("tool_choice"), tools)
    instructions, previous = body.get("instructions"), body.get("previous_response_id")
    return Request(
        messages=_messages([] if previous and body.get("input") is None else body.get("input"), images),
        tools=tools,
        images=tuple(images),
        sampling=read_sampling(body, "max_output_tokens", stop=None),
        model=name(body.get("model") or "policy", "model"),
        stream=flag(body, "stream"),
        instructions=None if instructions is None else text(instructions, "instructions"),
        previous=None if previous is None else name(previous, "previous_response_id").removeprefix("resp_"),
    )


def answer(request: Request, responses: Sequence[Response]) -> dict[str, Any]:
    """The body of the answer."""
    completion = responses[0].completion
    whole, prompt, written_tokens = completion.finish_reason != "length", *usage(responses)
    status, output = "completed" if whole else "incomplete", _output(request, completion.message)
    output[-1]["status"] = status
    return {
        **_head(request),
        "status": status,
        "incomplete_details": None if whole else {"reason": "max_output_tokens"},
        "output": output,
        "usage": {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": written_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + written_tokens,
        },
    }


def events(request: Request, responses: Sequence[Response]) -> Iterator[bytes]:
    """The answer as server-sent events: each item with its content, and the whole response."""
    for sequence, data in enumerate(_events(request, responses)):
        yield event({**data, "sequence_number": sequence}, data["type"])


def _events(request: Request, responses: Sequence[Response]) -> Iterator[dict[str, Any]]:
    whole, begun = answer(request, responses), {**_head(request), "status": "in_progress"}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        key, empty = ("content", []) if item["type"] == "message" else ("arguments", "")
        added = {**item, "status": "in_progress", key: empty}
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        if item["type"] == "message":
            part, place = item["content"][0], {**place, "content_index": 0}
            yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
            yield {"type": "response.output_text.delta", **place, "delta": part["text"], "logprobs": []}
            yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
            yield {"type": "response.content_part.done", **place, "part": part}
        else:
            yield {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}
            given = {"arguments": item["arguments"], "name": item["name"]}
            yield {"type": "response.function_call_arguments.done", **place, **given}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}


def _messages(value: object, images: list[bytes]) -> tuple[Message, ...]:
    """The messages of an input. Calls belong to the assistant's message before them, or to one without text."""
    if isinstance(value, str):
        return (Message(role="user", content=value),)
    messages: list[Message] = []
    for index, item in enumerate(items(value, "input", MOST_MESSAGES)):
        where = f"input[{index}]"
        given = table(item, where)
        kind = given.get("type") or "message"
        if kind == "message":
            messages.append(_message(given, where, images))
        elif kind == "function_call":
            call = read_call(given.get("call_id"), given.get("name"), given.get("arguments"), where)
            if not messages or messages[-1].role != "assistant":
                messages.append(Message(role="assistant"))
            messages[-1] = replace(messages[-1], tool_calls=(*messages[-1].tool_calls, call))
        elif kind == "function_call_output":
            content = read_content(given.get("output"), f"{where}.output", images)
            messages.append(
                Message(role="tool", content=content, tool_call_id=name(given.get("call_id"), f"{where}.call_id"))
            )
        elif kind not in THOUGHTS:
            raise Refusal(f"{where} has a type other than message, function_call, function_call_output and reasoning")
    return tuple(messages)


def _message(given: Mapping[str, Any], where: str, images: list[bytes]) -> Message:
    role, content = given.get("role"), read_content(given.get("content"), f"{where}.content", images)
    if role in ("system", "developer"):
        return Message(role="system", content=content)
    if role not in ("user", "assistant"):
        raise Refusal(f"{where}.role must be system, developer, user or assistant")
    return Message(role=role, content=content)


def _tool(value: Mapping[str, Any], where: str) -> ToolSchema:
    if value.get("type") != "function":
        raise Refusal(f"{where}.type must be function, because the agent calls its tools itself")
    return read_tool(value, where)


def _head(request: Request) -> dict[str, Any]:
    """What is known before the answer."""
    return {
        "id": f"resp_{request.id}",
        "object": "response",
        "created_at": request.created,
        "error": None,
        "incomplete_details": None,
        "instructions": request.instructions,
        "max_output_tokens": request.sampling.get("max_new_tokens"),
        "metadata": {},
        "model": request.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": f"resp_{request.previous}" if request.previous else None,
        "temperature": request.sampling.get("temperature"),
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [{"type": "function", "strict": False, **tool.as_json()["function"]} for tool in request.tools],
        "top_p": request.sampling.get("top_p"),
        "truncation": "disabled",
        "usage": None,
    }


def _output(request: Request, message: Message) -> list[dict[str, Any]]:
    """The items of the answer. A message is left out if it has only calls."""
    output: list[dict[str, Any]] = []
    if message.text or not message.tool_calls:
        part = {"type": "output_text", "text": message.text, "annotations": [], "logprobs": []}
        said = {"type": "message", "id": f"msg_{request.id}", "role": "assistant", "content": [part]}
        output.append({**said, "status": "completed"})
    for index, call in enumerate(message.tool_calls):
        called = {"call_id": call.id, "name": call.name, "arguments": written(call)}
        output.append({"type": "function_call", "id": f"fc_{request.id}_{index}", **called, "status": "completed"})
    return output
