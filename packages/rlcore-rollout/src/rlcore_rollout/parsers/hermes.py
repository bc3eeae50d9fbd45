"""Calls as JSON between ``<tool_call>`` tags: Hermes, Qwen2.5, Qwen3."""

from __future__ import annotations

from rlcore.types import ToolCall

from rlcore_rollout.parsers.calls import BadJson, bad_call, call_of, read_json, to_json

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MOST_UNREADABLE = 32
"""After so many unreadable calls in a turn the rest is left as text: to say where JSON breaks takes time in the length
of all text before it, so a flood of broken calls would take quadratic time."""
EXPECTED = f'{OPEN}{{"name": <tool name>, "arguments": {{...}}}}{CLOSE}'


class HermesParser:
    """Every tagged call of a turn. JSON without the tags is text: an answer that is JSON is no call."""

    def parse(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """The text without the calls, and all calls in order; unreadable ones with ``error`` set."""
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

    def render(self, call: ToolCall) -> str:
        """The text of a call as the model should write it."""
        return f'{OPEN}\n{{"name": {to_json(call.name)}, "arguments": {to_json(call.arguments or {})}}}\n{CLOSE}'


def _read_call(text: str, start: int, index: int) -> tuple[ToolCall, int]:
    """The call behind an opening tag, and where the text goes on."""
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
    # What is wrong ends with its closing tag, or before the next call. The search for the closing tag stops at the
    # next opening one: searching on to the end for each of many would take quadratic time.
    following = text.find(OPEN, start)
    stop = len(text) if following < 0 else following
    close = text.find(CLOSE, start, stop)
    body = text[start : close if close >= 0 else stop]
    if close < 0 and "not valid" in problem:
        problem += f", and {CLOSE} is missing"
    call = bad_call(problem, index=index, expected=EXPECTED, body=body)
    return call, close + len(CLOSE) if close >= 0 else stop
