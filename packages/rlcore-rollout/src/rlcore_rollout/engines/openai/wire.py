"""Conversion of messages to and from the chat-completions API. Responses are not trusted to be well-formed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlcore.errors import EngineError
from rlcore.images import data_uri
from rlcore.types import ChatCompletion, FrozenDict, Message, TextPart, ToolCall

from rlcore_rollout.parsers.calls import BadJson, bad_call, call_of, read_json, to_json

LONGEST_EXCERPT = 300
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
                "name": _writable(call.name) or "unreadable",
                "arguments": _writable(to_json(call.arguments or {})),
            },
        }
        for call in message.tool_calls
    ]
    return {"role": message.role, "content": content or None, "tool_calls": calls}


def _content_to_wire(message: Message, images: Mapping[str, bytes]) -> str | list[dict[str, Any]]:
    """One text, or parts where there are images."""
    if isinstance(message.content, str) or not message.images:
        return _writable(message.text)
    return [
        {"type": "text", "text": _writable(part.text)}
        if isinstance(part, TextPart)
        else {"type": "image_url", "image_url": {"url": data_uri(images[part.sha256])}}
        for part in message.content
    ]


def read_completion(body: bytes) -> ChatCompletion:
    """The answer in the body of a response.

    Text truncated by the token limit has no calls. Raises `EngineError` for an invalid answer.
    """
    try:
        data, _ = read_json(body.decode("utf-8"), 0)
    except (BadJson, UnicodeDecodeError):
        raise EngineError(f"the endpoint's answer is not JSON: {excerpt(body)}") from None
    choices = data.get("choices") if isinstance(data, dict) else None
    if not isinstance(choices, list) or not choices:
        raise EngineError(f"the endpoint's answer has no choices: {excerpt(body)}")
    choice = choices[0] if isinstance(choices[0], dict) else {}
    message, reason = choice.get("message"), choice.get("finish_reason")
    if not isinstance(message, dict):
        raise EngineError(f"the endpoint's answer has a choice without a message: {excerpt(body)}")
    if reason == "content_filter":
        raise EngineError("the endpoint's content filter truncated the answer")
    text = _text(message, body)
    given = message.get("tool_calls") or []
    if not isinstance(given, list):
        raise EngineError(f"the tool calls in the endpoint's answer are not a list: {excerpt(body)}")
    cut = reason == "length"
    calls = () if cut else tuple(_call(item, index) for index, item in enumerate(given))
    usage = data.get("usage")
    return ChatCompletion(
        message=Message(role="assistant", content=text, tool_calls=calls),
        finish_reason="length" if cut else "stop",
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
    )


def excerpt(body: bytes | str) -> str:
    """The beginning of an endpoint's response, as one printable line."""
    text = body[: 4 * LONGEST_EXCERPT]
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = " ".join(text.split())
    shown = "".join(character if character.isprintable() else "?" for character in text[:LONGEST_EXCERPT])
    return shown + ("…" if len(text) > LONGEST_EXCERPT else "") or "nothing"


def _text(message: Mapping[str, Any], body: bytes) -> str:
    """The text of the answer, which may also be null, a refusal or parts of text."""
    content = message.get("content")
    if content is None:
        refusal = message.get("refusal")
        return _writable(refusal) if isinstance(refusal, str) else ""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = "".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        raise EngineError(f"the content of the endpoint's answer is not text: {excerpt(body)}")
    return _writable(content)


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
    call = replace(call, name=_writable(call.name))
    return replace(call, id=_writable(given)) if isinstance(given, str) and given else call


def _count(usage: object, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if usable else None


def _writable(text: str) -> str:
    """Replace lone surrogates, which JSON can represent and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")
