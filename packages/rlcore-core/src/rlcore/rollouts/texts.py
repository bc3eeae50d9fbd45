"""Search stored groups for a text, whatever its case."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlcore.json_files import parse_json

AROUND = 60
"""Characters before and after a text that was found."""
_NUMBERS = (b'"token_ids": [', b'"loss_mask": [')
"""The longest parts of a stored trajectory, in which no text is looked for."""
_ASCII = re.compile(r"[ !#-\[\]-~]+")
_UNESCAPED = re.compile(r'[^"\\\x00-\x1f]+')
_ASCII_BYTES = bytes(range(0x80))
_CASELESS = re.compile(r"[\u2e80-\ua4cf\uac00-\ud7a3]+")
"""Chinese, Japanese and Korean, which have no case."""
_FOLDED = [
    chr(code).encode()
    for code in range(0x80, 0x10000)
    if not 0xD800 <= code < 0xE000 and any(one.isascii() for one in chr(code).casefold())
]
"""The characters besides ASCII that equal one of ASCII, at least in part, when case does not matter, such as the long
s."""


def matches(line: bytes, wanted: str) -> Iterator[tuple[int, str]]:
    """The siblings of a stored group whose trajectories contain a casefolded text, each with what is around it.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: it is no stored group.
    """
    for one in _parsed(line)["trajectories"]:
        said = next((text for text in _texts(one) if wanted in text.casefold()), None)
        if said is not None:
            yield one["sibling"], _around(said, wanted)


def may_contain_of(wanted: str) -> Callable[[bytes], bool]:
    """A fast test of a stored line, which is true for all lines that contain a casefolded text, and for some others.

    JSON escapes quotes, backslashes and control characters, and other characters may have another case. The test looks
    for the longest part without these.
    """
    letters = max(_CASELESS.findall(wanted), key=len, default="").encode()
    if letters:
        return lambda line: letters in line or (b"\\" in line and b"\\u" in line)  # the first test is fast
    part = max(_ASCII.findall(wanted), key=len, default="").encode()
    if part:
        return lambda line: part in line.lower() or (not line.isascii() and _has_folded(line))
    other = max(_UNESCAPED.findall(wanted), key=len, default="")
    return lambda line: b"\\u" in line or other in line.decode("utf-8", "surrogatepass").casefold()


def _has_folded(line: bytes) -> bool:
    rest = line.translate(None, _ASCII_BYTES)  # is short in most texts
    return any(one in rest for one in _FOLDED)


def _around(text: str, wanted: str) -> str:
    """The place of another text in a text, with some characters on both sides."""
    at = text.casefold().find(wanted)  # casefolded texts have about the same length
    start, end = max(0, at - AROUND), at + len(wanted) + AROUND
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def _parsed(line: bytes) -> Any:
    """A stored group without the numbers of its tokens, which take most of the time."""
    short = line
    try:
        for key in _NUMBERS:
            first, *others = short.split(key)
            short = key.join([first, *(one[one.index(b"]") :] for one in others)])
        return json.loads(short.decode("utf-8", "surrogatepass"))
    except ValueError:  # other lists have these names
        return parse_json(line)


def _texts(trajectory: Mapping[str, Any]) -> Iterator[str]:
    """What is searched of a stored trajectory: messages, tool calls and what judges said."""
    for segment in trajectory["segments"]:
        for turn in segment["turns"]:
            for message in turn["messages"]:
                content = message["content"]
                yield content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
                for call in message.get("tool_calls", ()):
                    yield call["name"]
                    yield call.get("error") or ""
                    yield from _strings(call["arguments"])
                    yield json.dumps(call["arguments"], ensure_ascii=False)
    for result in trajectory.get("rewards", {}).values():
        yield result.get("text", "")
        yield result.get("error") or ""


def _strings(value: Any) -> Iterator[str]:
    """The texts in the arguments of a call, such as code, in which JSON would escape line breaks."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


__all__ = ["matches", "may_contain_of"]
