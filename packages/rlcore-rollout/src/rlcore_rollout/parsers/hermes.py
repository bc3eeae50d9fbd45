"""Parses calls from JSON between ``<tool_call>`` tags: Hermes, Qwen2.5, Qwen3."""

from __future__ import annotations

from rlcore.types import ToolCall

from rlcore_rollout.parsers.calls import BadJson, bad_call, call_of, read_json, to_json

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MOST_UNREADABLE = 32
"""Maximum number of unreadable calls in a turn. The rest of the turn is left as text. Locating a JSON error takes time
proportional to the preceding text, so many broken calls would take quadratic time."""
EXPECTED = f'{OPEN}{{"name": <tool name>, "arguments": {{...}}}}{CLOSE}'


class HermesParser:
    """Parses every tagged call of a turn. JSON without the tags is text, so a JSON answer is not a call."""

    opening = OPEN

    def parse(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Return the text without the calls, and all calls in order. Unreadable calls have ``error`` set."""
        kept: list[str] = []
        calls: list[ToolCall] = []
        position = unreadable = 0
        while unreadable < MOST_UNREADABLE and (start := text.find(OPEN, position)) >= 0:
            kept.append(text[position:start])
            call, position = _read_call(text, start + len(OPEN), len(calls))
            calls.append(call)
            unreadable += call.error is not None
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
        return f'{OPEN}\n{{"name": {to_json(call.name)}, "arguments": {to_json(call.arguments or {})}}}\n{CLOSE}'


def _read_call(text: str, start: int, index: int) -> tuple[ToolCall, int]:
    """Parse the call after an opening tag. Returns it with the position where the text continues."""
    try:
        value, end = read_json(text, start)
    except BadJson as error:
        problem = f"the call is not valid JSON: {error}"
    else:
        stripped = end
        while stripped < len(text) and text[stripped].isspace():
            stripped += 1
        if text.startswith(CLOSE, stripped):
            return call_of(value, index=index, expected=EXPECTED), stripped + len(CLOSE)
        problem = (
            f"{CLOSE} is missing after the JSON object"
            if stripped == len(text)
            else "there is more than one JSON object"
        )
    # An invalid call ends at its closing tag, or before the next call. The search for the closing tag stops at
    # the next opening tag: searching to the end of the text for each of many calls would take quadratic time.
    following = text.find(OPEN, start)
    stop = len(text) if following < 0 else following
    close = text.find(CLOSE, start, stop)
    body = text[start : close if close >= 0 else stop]
    if close < 0 and "not valid" in problem:
        problem += f", and {CLOSE} is missing"
    call = bad_call(problem, index=index, expected=EXPECTED, body=body)
    return call, close + len(CLOSE) if close >= 0 else stop
