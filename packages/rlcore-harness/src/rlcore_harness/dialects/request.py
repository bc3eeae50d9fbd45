"""What the three APIs share: a request as rlcore's values, and the readers of its fields, which nobody has checked."""

from __future__ import annotations

import base64
import json
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from rlcore.json_files import parse_answer
from rlcore.types import (
    FrozenDict,
    ImagePart,
    Message,
    Part,
    Response,
    TextPart,
    ToolCall,
    ToolSchema,
    freeze,
    thaw,
)
from rlcore.types.checking import is_finite

MOST_MESSAGES = 10_000
MOST_TOOLS = 1_024
MOST_IMAGES = 256
MOST_CHOICES = 128
"""As in OpenAI's API."""
MOST_STOPS = 16
LONGEST_NAME = 256
"""Characters of a name or an id."""
LENGTH_OF_ID = 24
"""Characters of the id of a response, without the prefix of its dialect."""
LARGEST_IMAGE = 20 * 2**20
"""Bytes of an encoded image."""
TEXTS = ("text", "input_text", "output_text")  # no sets: a type may be a list, which has no hash
IMAGES = ("image", "image_url", "input_image")
THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
"""Parts and items that are not sent to the policy, which has none."""
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
NO_LOGPROBS = "the policy's log-probabilities are recorded, but not returned"
NO_SCHEMA = "the output of the policy cannot be constrained; ask for the format in the prompt, or define a tool"
NO_PENALTY = "the policy is sampled from its own distribution"
NO_STATE = "the server keeps only what previous_response_id refers to"
UNSUPPORTED: Mapping[str, tuple[Any, str]] = {
    "audio": (None, "the policy has no audio"),
    "background": (False, "responses are sent when they are complete"),
    "container": (None, "the policy has no containers"),
    "conversation": (None, NO_STATE),
    "frequency_penalty": (0, NO_PENALTY),
    "function_call": ("auto", "use tool_choice"),
    "functions": ([], "use tools"),
    "guided_choice": (None, NO_SCHEMA),
    "guided_grammar": (None, NO_SCHEMA),
    "guided_json": (None, NO_SCHEMA),
    "guided_regex": (None, NO_SCHEMA),
    "ignore_eos": (False, NO_PENALTY),
    "logit_bias": ({}, NO_PENALTY),
    "logprobs": (False, NO_LOGPROBS),
    "mcp_servers": ([], "the agent calls its tools itself"),
    "min_p": (0, "use top_p"),
    "min_tokens": (0, NO_PENALTY),
    "modalities": (["text"], "the policy answers with text"),
    "output_format": (None, NO_SCHEMA),
    "presence_penalty": (0, NO_PENALTY),
    "prompt": (None, "send the messages"),
    "repetition_penalty": (1, NO_PENALTY),
    "response_format": ({"type": "text"}, NO_SCHEMA),
    "structured_outputs": (None, NO_SCHEMA),
    "top_logprobs": (0, NO_LOGPROBS),
    "web_search_options": (None, "the agent calls its tools itself"),
}
"""Options that would change what is sampled or returned: the value that changes nothing, and the reason."""


class Refusal(Exception):
    """A request that is not answered. The message is for its author.

    Attributes:
        status: the status of HTTP
        code: the code of the error in OpenAI's APIs
    """

    def __init__(self, message: str, *, status: int = 400, code: str | None = None) -> None:
        self.status, self.code = status, code
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request for answers of the policy."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    images: tuple[bytes, ...] = ()
    sampling: Mapping[str, Any] = FrozenDict()
    model: str
    """As the request named it, which is ignored otherwise."""
    count: int = 1
    """Number of answers."""
    stream: bool = False
    stream_usage: bool = False
    """Whether a stream of the chat dialect ends with the number of tokens."""
    instructions: str | None = None
    """The system message of the responses dialect, which a later request does not inherit."""
    previous: str | None = None
    """The id of the response that the messages follow, in the responses dialect."""
    id: str = field(default_factory=lambda: secrets.token_hex(LENGTH_OF_ID // 2))
    """The id of the response, without the prefix of the dialect."""
    created: int = field(default_factory=lambda: int(time.time()))

    def conversation(self) -> tuple[Message, ...]:
        """The messages for the policy, in which the answers of tools have the names of the tools."""
        named, names = list[Message](), dict[str, str]()
        for message in self.messages:
            names.update({call.id: call.name for call in message.tool_calls})
            if message.role == "tool":
                message = replace(message, name=names.get(message.tool_call_id or "", message.name))
            named.append(message)
        first = () if self.instructions is None else (Message(role="system", content=self.instructions),)
        return (*first, *named)


class Dialect(Protocol):
    """A module of this package."""

    @staticmethod
    def read(body: Mapping[str, Any]) -> Request:
        """The request of a body. Raises `Refusal`."""

    @staticmethod
    def answer(request: Request, responses: Sequence[Response]) -> dict[str, Any]:
        """The body of the answer."""

    @staticmethod
    def events(request: Request, responses: Sequence[Response]) -> Iterable[bytes]:
        """The answer as server-sent events."""

    @staticmethod
    def error(status: int, message: str, code: str | None) -> dict[str, Any]:
        """The body of an error."""


def parse(content: bytes) -> Any:
    """The value of a JSON text. Lone surrogates, which no tokenizer can read, become question marks.

    Raises:
        ValueError: it is not JSON in UTF-8, too deep, or has too many values.
    """
    content.decode()
    value = parse_answer(content)
    if SURROGATE.search(content):
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value


def table(value: object, where: str) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise Refusal(f"{where} must be an object, found {_kind(value)}")
    return value


def items(value: object, where: str, most: int) -> list[Any]:
    """A list with at most this many items."""
    if not isinstance(value, list):
        raise Refusal(f"{where} must be a list, found {_kind(value)}")
    if len(value) > most:
        raise Refusal(f"{where} has {len(value):,} items, more than {most:,}")
    return value


def text(value: object, where: str, *, longest: int | None = None) -> str:
    """A text."""
    if not isinstance(value, str):
        raise Refusal(f"{where} must be a text, found {_kind(value)}")
    if longest is not None and len(value) > longest:
        raise Refusal(f"{where} has {len(value):,} characters, more than {longest:,}")
    return value


def name(value: object, where: str) -> str:
    """A name or an id."""
    return text(value, where, longest=LONGEST_NAME)


def flag(body: Mapping[str, Any], key: str) -> bool:
    """A boolean that is false by default."""
    value = body.get(key)
    if value is not None and not isinstance(value, bool):
        raise Refusal(f"{key} must be true or false, found {_kind(value)}")
    return bool(value)


def whole(body: Mapping[str, Any], key: str, least: int, most: int) -> int | None:
    """An integer; None if the body has none."""
    value = body.get(key)
    if value is not None and (type(value) is not int or not least <= value <= most):
        raise Refusal(f"{key} must be a whole number from {least} to {most:,}, found {_shown(value)}")
    return value


def number(body: Mapping[str, Any], key: str, most: float) -> float | None:
    """A number from 0; None if the body has none."""
    value = body.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= most:  # false for nan
        raise Refusal(f"{key} must be a number from 0 to {most:g}, found {_shown(value)}")
    return float(value)


def refuse_unsupported(body: Mapping[str, Any], **others: tuple[Any, str]) -> None:
    """Raise `Refusal` for options that the policy cannot follow. Other unknown keys are ignored."""
    for key in body.keys() & (UNSUPPORTED.keys() | others.keys()):
        neutral, reason = {**UNSUPPORTED, **others}[key]
        if body[key] is not None and body[key] != neutral:
            raise Refusal(f"{key} is not supported: {reason}", code="unsupported_parameter")


def refuse_tool_choice(choice: object, tools: Sequence[ToolSchema]) -> None:
    """Raise `Refusal` for an unknown choice, and for answers without calls where there are tools.

    A call that is required is not enforced, because the policy is sampled from its own distribution. Frameworks require
    one by default, and handle an answer without it.
    """
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if kind == "none" and tools:
        raise Refusal("tool_choice none is not supported: send no tools", code="unsupported_parameter")
    if kind not in (None, "none", "auto", "required", "any", "function", "tool"):
        raise Refusal(f"tool_choice {_shown(kind)} is unknown", code="unsupported_parameter")


def read_sampling(body: Mapping[str, Any], *limits: str, stop: str | None = "stop") -> dict[str, Any]:
    """The fields of `rlcore.types.Sampling` in a body.

    Args:
        body: the body
        limits: the keys of the token limit
        stop: the key of the stop texts
    """
    found: dict[str, Any] = {
        "temperature": number(body, "temperature", 2),
        "top_p": number(body, "top_p", 1),
        "top_k": whole(body, "top_k", -1, 2**31 - 1),
    }
    for key in limits:
        found["max_new_tokens"] = whole(body, key, 1, 2**31 - 1) or found.get("max_new_tokens")
    if found["top_k"] == -1:  # vLLM's word for all tokens
        found["top_k"] = 0
    if found["top_p"] == 0:
        raise Refusal("top_p must be more than 0; use temperature 0 for the most probable tokens")
    stops = body.get(stop) if stop else None
    if stops:
        texts = [stops] if isinstance(stops, str) else items(stops, str(stop), MOST_STOPS)
        found["stop"] = tuple(name(each, f"{stop}[{index}]") for index, each in enumerate(texts))
        if "" in found["stop"]:
            raise Refusal(f"{stop} has an empty text")
    return {key: value for key, value in found.items() if value is not None}


def read_tool(value: Mapping[str, Any], where: str, parameters: str = "parameters") -> ToolSchema:
    """A tool from its name, description and schema."""
    named = name(value.get("name"), f"{where}.name")
    if not named:
        raise Refusal(f"{where}.name is empty")
    schema = value.get(parameters)
    return ToolSchema(
        name=named,
        description=text(value.get("description") or "", f"{where}.description"),
        parameters={"type": "object", "properties": {}} if schema is None else table(schema, f"{where}.{parameters}"),
    )


def read_content(value: object, where: str, images: list[bytes]) -> str | tuple[Part, ...]:
    """The content of a message. Its images are appended to ``images``."""
    if value is None or isinstance(value, str):
        return value or ""
    parts = list[Part]()
    for index, item in enumerate(items(value, where, MOST_MESSAGES)):
        place = f"{where}[{index}]"
        part = table(item, place)
        kind = part.get("type")
        if kind in TEXTS:
            parts.append(TextPart(text=text(part.get("text"), f"{place}.text")))
        elif kind == "refusal":
            parts.append(TextPart(text=text(part.get("refusal"), f"{place}.refusal")))
        elif kind in IMAGES:
            images.append(_image(part, place))
            parts.append(ImagePart.of(images[-1]))
        elif kind not in THOUGHTS:
            raise Refusal(f"{place} has the type {_shown(kind)}; the policy reads text and images")
    if len(images) > MOST_IMAGES:
        raise Refusal(f"the request has more than {MOST_IMAGES} images")
    if all(isinstance(part, TextPart) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    return tuple(parts)


def _image(part: Mapping[str, Any], where: str) -> bytes:
    """The bytes of an image, as each of the APIs writes it."""
    value = part.get("image_url", part.get("source"))
    source = {"url": value} if isinstance(value, str) else table(value, f"{where}.image_url or .source")
    encoded = source.get("data")
    if source.get("type") != "base64":
        head, comma, encoded = text(source.get("url"), f"{where}.url").partition(",")
        if not head.startswith("data:image/") or not head.endswith(";base64") or not comma:
            raise Refusal(f"{where} must be a data: URL of an image in base64, because the server opens no URLs")
    encoded = text(encoded, f"{where}.data")
    if len(encoded) > LARGEST_IMAGE * 4 / 3 + 4:
        raise Refusal(f"{where} is an image of more than {LARGEST_IMAGE:,} bytes", status=413)
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        raise Refusal(f"{where} is not valid base64") from None


def read_call(id: object, called: object, arguments: object, where: str) -> ToolCall:
    """A call with its arguments as JSON. Unreadable arguments are kept in ``error``; `written` is the inverse."""
    given = text(arguments, f"{where}.arguments")
    value: object = {}
    if given.strip():
        try:
            value = parse(given.encode())
        except ValueError:
            value = None
    values = freeze(value) if isinstance(value, dict) else None
    return ToolCall(
        id=name(id, f"{where}.id"),
        name=name(called, f"{where}.name"),
        arguments=values,
        error=None if values is not None else given,
    )


def written(call: ToolCall) -> str:
    """The arguments of a call as JSON, or the reason why they are unreadable, which is none."""
    return (call.error or "") if call.arguments is None else json.dumps(thaw(call.arguments), ensure_ascii=False)


def usage(responses: Sequence[Response]) -> tuple[int, int]:
    """The number of tokens of the prompt and of all answers; 0 if the engine does not report them."""
    completions = [response.completion for response in responses]
    return completions[0].prompt_tokens or 0, sum(each.completion_tokens or 0 for each in completions)


def event(data: Mapping[str, Any], kind: str | None = None) -> bytes:
    """A server-sent event."""
    return (f"event: {kind}\n" if kind else "").encode() + b"data: " + json.dumps(data).encode() + b"\n\n"


def finite(value: object, where: str) -> float:
    """A finite number."""
    if type(value) not in (int, float) or not is_finite(value):
        raise Refusal(f"{where} must be a finite number, found {_shown(value)}")
    return float(cast(float, value))


def _kind(value: object) -> str:
    kinds: dict[type, str] = {str: "a text", bool: "a boolean", int: "a number", float: "a number", list: "a list"}
    return "null or nothing" if value is None else kinds.get(type(value), "an object")


def _shown(value: object) -> str:
    return f"{value!r:.40}" if isinstance(value, (str, float)) or type(value) is int else _kind(value)
