"""Read the answers of chat-completions endpoints, which are not trusted to be well-formed."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore.endpoints.failures import EndpointFailure
from rlcore.json_files import parse_answer
from rlcore.redaction import MASK

LONGEST_EXCERPT = 300
MOST_BYTES = 16 * 2**20
"""Maximum size of an answer in bytes."""
PART = 8
"""Characters of a part of a key that is recognised."""
_LOWER = {ord(letter): letter.lower() for letter in string.ascii_uppercase}
FULL = ("context_length_exceeded", "exceed_context_size", "maximum context length")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The first choice of a response, and what it cost."""

    text: str
    tool_calls: Sequence[Any] = ()
    """The calls as they were received. None of their fields has been checked."""
    truncated: bool
    """Whether the token limit ended the text."""
    prompt_tokens: int | None
    completion_tokens: int | None


def read_answer(body: bytes) -> Answer:
    """The answer in the body of a response.

    Raises:
        EndpointFailure: the body is not a response, or the endpoint withheld its answer.
    """
    try:
        data = parse_answer(body)
    except ValueError:
        raise EndpointFailure(f"the endpoint's answer is not JSON: {excerpt(body)}") from None
    choices = data.get("choices") if isinstance(data, dict) else None
    if not isinstance(choices, list) or not choices:
        raise EndpointFailure(f"the endpoint's answer has no choices: {excerpt(body)}")
    choice = choices[0] if isinstance(choices[0], dict) else {}
    message, reason = choice.get("message"), choice.get("finish_reason")
    if not isinstance(message, dict):
        raise EndpointFailure(f"the endpoint's answer has a choice without a message: {excerpt(body)}")
    if reason == "content_filter":
        raise EndpointFailure("the endpoint's content filter truncated the answer", "content filter")
    calls, usage = message.get("tool_calls") or [], data.get("usage")
    if not isinstance(calls, list):
        raise EndpointFailure(f"the tool calls in the endpoint's answer are not a list: {excerpt(body)}")
    return Answer(
        text=_text(message, body),
        tool_calls=tuple(calls),
        truncated=reason == "length",
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
    )


def error_said(body: bytes) -> tuple[str, str]:
    """The endpoint's own message about an error, and its code."""
    try:
        data = parse_answer(body)
    except ValueError:
        return excerpt(body), ""
    inner = data.get("error", data) if isinstance(data, dict) else data
    message = inner.get("message") if isinstance(inner, dict) else inner
    code = (inner.get("code") or inner.get("type")) if isinstance(inner, dict) else ""
    return excerpt(message if isinstance(message, str) and message else body), str(code or "")


def is_full(body: bytes) -> bool:
    """Whether an error says that the context is full: OpenAI and llama.cpp return a code, vLLM returns a message."""
    text = body[:4000].decode("utf-8", "replace").lower()
    return any(hint in text for hint in FULL)


def excerpt(body: bytes | str) -> str:
    """The beginning of an endpoint's response, as one printable line."""
    text = body[: 4 * LONGEST_EXCERPT]
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = " ".join(text.split())
    shown = "".join(character if character.isprintable() else "?" for character in text[:LONGEST_EXCERPT])
    return shown + ("…" if len(text) > LONGEST_EXCERPT else "") or "nothing"


def without_key(text: str, key: str | None) -> str:
    """Remove the key from a text, also in part and in another case, because endpoints may repeat a rejected key.

    A part has at least `PART` characters, and is not only letters, which can be an ordinary word.
    """
    if not key:
        return text
    size = min(PART, len(key))
    lowered, secret = text.translate(_LOWER), key.translate(_LOWER)
    parts = {secret[start : start + size] for start in range(len(secret) - size + 1)}
    shown, done, at = [], 0, 0
    while at <= len(lowered) - size:
        end = at
        while lowered[end : end + size] in parts:
            end += 1
        if end > at:
            end += size - 1
            found = lowered[at:end]
            if found == secret or not found.isalpha():
                shown += [text[done:at], MASK]
                done = end
        at = max(end, at + 1)
    masked = "".join([*shown, text[done:]])
    for length in range(size - 1, 3, -1):  # one that an excerpt's end has cut
        masked = masked.replace(f"{key[:length]}…", f"{MASK}…")
    return masked


def writable(text: str) -> str:
    """Replace lone surrogates, which JSON can represent and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _text(message: Mapping[str, Any], body: bytes) -> str:
    """The text of the answer, which may also be null, a refusal or parts of text."""
    content = message.get("content")
    if content is None:
        refusal = message.get("refusal")
        return writable(refusal) if isinstance(refusal, str) else ""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = "".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        raise EndpointFailure(f"the content of the endpoint's answer is not text: {excerpt(body)}")
    return writable(content)


def _count(usage: object, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if usable else None
