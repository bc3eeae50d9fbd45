"""Parses calls with one tag per argument: Qwen3-Coder.

The format does not mark the types of values. A value that is JSON is read as JSON, also ``True``, ``False`` and
``None``, which templates write; every other value is a string. `rlcore_rollout.parsers.declared_types` corrects the
types of a call with the schema of its tool.
"""

from __future__ import annotations

import re
from typing import Any

from rlcore.types import ToolCall, thaw

from rlcore_rollout.parsers.calls import BadJson, bad_call, call_id, read_json, to_json

OPEN, CLOSE = "<tool_call>", "</tool_call>"
FUNCTION, END = "<function=", "</function>"
PARAMETER, VALUE_END = "<parameter=", "</parameter>"
# The end of a value with what must follow it: code in a value may contain the tags themselves.
_NEXT = re.compile(rf"{VALUE_END}(?=\s{{0,64}}{PARAMETER})")
_LAST = re.compile(rf"{VALUE_END}\s{{0,64}}{END}")
_LAST_IN_TAGS = re.compile(rf"{VALUE_END}\s{{0,64}}{END}\s{{0,64}}{CLOSE}")
EXPECTED = f"{OPEN}{FUNCTION}<tool name>>{PARAMETER}<name>><value>{VALUE_END}...{END}{CLOSE}"
MOST_UNREADABLE = 32
"""Maximum number of unreadable calls in a turn. The rest of the turn is left as text."""
_PYTHON: dict[str, Any] = {"True": True, "False": False, "None": None}
_TAG = re.compile(re.escape(OPEN) + r"\s{0,64}$")
_CALL = re.compile(rf"{OPEN}\s{{0,64}}{FUNCTION}")


class Qwen3CoderParser:
    """Parses every ``<function=NAME>`` of a turn, with or without the tags ``<tool_call>`` around it."""

    opening = FUNCTION

    def parse(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Return the text without the calls, and all calls in order. Unreadable calls have ``error`` set."""
        kept: list[str] = []
        calls: list[ToolCall] = []
        position = unreadable = 0
        while unreadable < MOST_UNREADABLE and (start := text.find(FUNCTION, position)) >= 0:
            tag = _tag_before(text, start, position)
            kept.append(text[position : tag.start() if tag else start])
            call, position = _read_call(text, start + len(FUNCTION), len(calls))
            calls.append(call)
            unreadable += call.error is not None
            following = position
            while following < len(text) and text[following].isspace():
                following += 1
            if text.startswith(CLOSE, following):
                position = following + len(CLOSE)
        kept.append(text[position:])
        if not calls:
            return text, ()
        return "\n".join(piece for piece in map(str.strip, kept) if piece), tuple(calls)

    def end_of_call(self, text: str, start: int) -> int | None:
        """Return the end of the whole call after an opening; None if it is not one."""
        call, end = _read_call(text, start, 0)
        return end if call.error is None else None

    def render(self, call: ToolCall) -> str:
        """Return the text of a call as the model should write it."""
        values = "".join(
            f"{PARAMETER}{key}>\n{_written(value)}\n{VALUE_END}\n" for key, value in (call.arguments or {}).items()
        )
        return f"{OPEN}\n{FUNCTION}{call.name}>\n{values}{END}\n{CLOSE}"


def _read_call(text: str, start: int, index: int) -> tuple[ToolCall, int]:
    """Parse the call after ``<function=``. Returns it with the position where the text continues.

    A whole call may contain the tags of calls in its values. One that is not whole ends before the next one.
    """
    call, end = _read_until(text, start, index, len(text))
    following = text.find(FUNCTION, start)
    return (call, end) if call.error is None or following < 0 else _read_until(text, start, index, following)


def _read_until(text: str, start: int, index: int, limit: int) -> tuple[ToolCall, int]:
    name, position = _tag_name(text, start, limit)
    if name is None:
        return bad_call("the name of the tool is missing", index=index, expected=EXPECTED), limit

    def bad(problem: str, end: int) -> tuple[ToolCall, int]:
        return bad_call(problem, index=index, expected=EXPECTED, name=name or ""), end

    arguments, texts = dict[str, Any](), dict[str, str]()
    last: int | None = None
    while True:
        while position < limit and text[position].isspace():
            position += 1
        if text.startswith(END, position):
            call = ToolCall(name=name, arguments=arguments, id=call_id(index), texts=texts or None)
            return call, position + len(END)
        if not text.startswith(PARAMETER, position):
            return bad(f"{END} is missing" if position == limit else f"there is text outside {PARAMETER}...>", limit)
        key, position = _tag_name(text, position + len(PARAMETER), limit)
        if last is None:
            last = _last_value_end(text, start, position, limit)
        whole = last >= position
        found = _NEXT.search(text, position, last if whole else limit)
        end = found.start() if found else last if whole else text.find(VALUE_END, position, limit)
        if key is None or end < 0:
            return bad(f"{VALUE_END} is missing", limit)
        written = text[position:end].removeprefix("\n").removesuffix("\n")
        arguments[key] = _read_value(written)
        if not isinstance(arguments[key], str):
            texts[key] = written
        position = end + len(VALUE_END)


def _tag_before(text: str, function: int, earliest: int = 0) -> re.Match[str] | None:
    """The ``<tool_call>`` before ``<function=`` at this position."""
    return _TAG.search(text, max(earliest, function - 64 - len(OPEN)), function)


def _last_value_end(text: str, start: int, position: int, limit: int) -> int:
    """The end of the last value of a call: at the last closing tags before the next call. -1 if there are none.

    Closing tags without ``</tool_call>`` are part of a value if the call starts with ``<tool_call>`` and has others.
    """
    pattern, last = _LAST, _LAST.search(text, position, limit)
    if last is None:
        return -1
    if _tag_before(text, start - len(FUNCTION)):
        call = _CALL.search(text, last.end(), limit)
        if closed := _LAST_IN_TAGS.search(text, last.start(), call.start() if call else limit):
            pattern, last = _LAST_IN_TAGS, closed
    following = text.find(FUNCTION, last.end(), limit)
    *_, end = pattern.finditer(text, last.start(), limit if following < 0 else following)
    return end.start()


def _tag_name(text: str, start: int, limit: int) -> tuple[str | None, int]:
    """Return the name up to ``>`` and the position after it; None if there is none."""
    end = text.find(">", start, min(limit, start + 129))
    name = "" if end < 0 else text[start:end].strip()
    return (name, end + 1) if name else (None, start)


def _read_value(text: str) -> Any:
    stripped = text.strip()
    if stripped in _PYTHON:
        return _PYTHON[stripped]
    try:
        value, end = read_json(stripped, 0)
    except BadJson:
        return text
    return value if end == len(stripped) else text


def _written(value: Any) -> str:
    """Return a value in a form that is read back as the same value."""
    if isinstance(value, str) and "</" not in value and "<function=" not in value and _read_value(value) == value:
        return value
    return to_json(thaw(value)).replace("<", "\\u003c")
