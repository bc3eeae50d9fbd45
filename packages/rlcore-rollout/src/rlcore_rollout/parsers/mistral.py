"""Parses calls after ``[TOOL_CALLS]``: Mistral. Both a JSON list and ``name[ARGS]{...}`` are recognised."""

from __future__ import annotations

import re
from dataclasses import replace

from rlcore.types import ToolCall

from rlcore_rollout.parsers.calls import BadJson, bad_call, call_id, call_of, kind_of, read_json, to_json
from rlcore_rollout.parsers.think import without_thoughts

TAG, ARGUMENTS = "[TOOL_CALLS]", "[ARGS]"
THOUGHTS = "[THINK]", "[/THINK]"
EXPECTED = f'{TAG} [{{"name": <tool name>, "arguments": {{...}}}}, ...]'
MOST_UNREADABLE = 32
"""Maximum number of unreadable calls in a turn. The rest of the turn is left as text."""
_NAMED = re.compile(r"\s{0,8}([A-Za-z0-9_.-]{1,64})(?:\[CALL_ID\]([A-Za-z0-9]{1,64}))?\[ARGS\]")
_ID = re.compile(r"[A-Za-z0-9]{9}")
"""The ids that Mistral's models write and expect in results."""


class MistralParser:
    """Parses every tagged list of calls outside the reasoning. Text before the first tag is the content."""

    opening = TAG

    def parse(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Return the text without the calls, and all calls in order. Unreadable calls have ``error`` set."""
        text = without_thoughts(text, *THOUGHTS, calls=self)
        kept: list[str] = []
        calls: list[ToolCall] = []
        position = unreadable = 0
        while unreadable < MOST_UNREADABLE and (start := text.find(TAG, position)) >= 0:
            kept.append(text[position:start])
            found, position = _read(text, start + len(TAG), len(calls))
            unreadable += any(call.error is not None for call in found)
            calls += found
        kept.append(text[position:])
        if not calls:
            return text, ()
        return "\n".join(piece for piece in map(str.strip, kept) if piece), _with_distinct_ids(calls)

    def end_of_call(self, text: str, start: int) -> int | None:
        """Return the end of the whole call after an opening; None if it is not one."""
        calls, end = _read(text, start, 0)
        return end if all(call.error is None for call in calls) else None

    def render(self, call: ToolCall) -> str:
        """Return the text of a call as the model should write it."""
        return f'{TAG}[{{"name": {to_json(call.name)}, "arguments": {to_json(call.arguments or {})}}}]'


def _read(text: str, start: int, index: int) -> tuple[list[ToolCall], int]:
    """Parse what follows a tag. Returns the calls with the position where the text continues."""
    if named := _NAMED.match(text, start):
        name, given = named.groups()
        try:
            value, end = read_json(text, named.end())
        except BadJson as error:
            return [_unreadable(text, start, index, f"the arguments are not valid JSON: {error}", name)], _next(
                text, start
            )
        if not isinstance(value, dict):
            problem = f"the arguments must be an object, found {kind_of(value)}"
            return [bad_call(problem, index=index, expected=EXPECTED, name=name)], end
        return [ToolCall(name=name, arguments=value, id=given or call_id(index))], end
    try:
        value, end = read_json(text, start)
    except BadJson as error:
        return [_unreadable(text, start, index, f"the calls are not valid JSON: {error}")], _next(text, start)
    if not isinstance(value, list) or not value:
        problem = f"{TAG} must be followed by a list of calls, found {kind_of(value)}"
        return [bad_call(problem, index=index, expected=EXPECTED)], end
    return [_call(one, index + place) for place, one in enumerate(value)], end


def _call(value: object, index: int) -> ToolCall:
    call = call_of(value, index=index, expected=EXPECTED)
    given = value.get("id") if isinstance(value, dict) else None
    return replace(call, id=given) if isinstance(given, str) and _ID.fullmatch(given) else call


def _with_distinct_ids(calls: list[ToolCall]) -> tuple[ToolCall, ...]:
    """Return the calls with their own ids, or with numbered ones if two are equal."""
    if len({call.id for call in calls}) == len(calls):
        return tuple(calls)
    return tuple(replace(call, id=call_id(index)) for index, call in enumerate(calls))


def _unreadable(text: str, start: int, index: int, problem: str, name: str = "") -> ToolCall:
    return bad_call(problem, index=index, expected=EXPECTED, name=name, body=text[start : start + 400])


def _next(text: str, start: int) -> int:
    """Return the position of the next tag, or the end of the text."""
    following = text.find(TAG, start)
    return len(text) if following < 0 else following
