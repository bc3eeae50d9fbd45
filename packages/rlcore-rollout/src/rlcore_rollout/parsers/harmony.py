"""Parses turns of the harmony format: gpt-oss. A turn is one or more messages, each in a channel.

A message to a recipient, ``to=functions.NAME``, is a call with its arguments as JSON. The channel ``analysis`` is the
reasoning, which is neither an answer nor a call. All other text is the answer.
"""

from __future__ import annotations

import re

from rlcore.types import ToolCall

from rlcore_rollout.parsers.calls import BadJson, bad_call, call_id, kind_of, read_json, to_json

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
EXPECTED = f"{CHANNEL}commentary to=functions.<tool name> <|constrain|>json{MESSAGE}{{...}}"
LONGEST_HEADER = 512
"""Characters of a message's header. A longer one is text."""
MOST_UNREADABLE = 32
"""Maximum number of unreadable calls in a turn. The rest of the turn is left as text."""
_RECIPIENT = re.compile(r"to=([^\s<]{1,128})")
_END = re.compile("|".join(map(re.escape, (*ENDS, START))))
_CHANNEL = re.compile(re.escape(CHANNEL) + r"\s{0,8}([a-z]{1,32})")


class HarmonyParser:
    """Parses every message of a turn."""

    def parse(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Return the answer without reasoning and calls, and all calls in order. Unreadable ones have ``error`` set."""
        kept: list[str] = []
        calls: list[ToolCall] = []
        position = header = unreadable = 0
        while unreadable < MOST_UNREADABLE and (start := text.find(MESSAGE, position)) >= 0:
            header = max(position, start - LONGEST_HEADER)
            words, body = text[header:start], start + len(MESSAGE)
            recipient, channel = _RECIPIENT.search(words), _CHANNEL.search(words)
            if recipient is not None and recipient[1] != "assistant":
                call, position = _read_call(text, body, recipient[1].removeprefix("functions."), len(calls))
                calls.append(call)
                unreadable += call.error is not None
                continue
            end = _END.search(text, body)
            stop, position = (len(text), len(text)) if end is None else end.span()
            if channel is None or channel[1] != "analysis":
                kept.append(text[body:stop])
        if not kept and not calls and not position:
            return text, ()
        if unreadable >= MOST_UNREADABLE:
            kept.append(text[position:])
        return "\n".join(piece for piece in map(str.strip, kept) if piece), tuple(calls)

    def render(self, call: ToolCall) -> str:
        """Return the text of a call as the model should write it."""
        arguments = to_json(call.arguments or {})
        return f"{CHANNEL}commentary to=functions.{call.name} <|constrain|>json{MESSAGE}{arguments}"


def _read_call(text: str, start: int, name: str, index: int) -> tuple[ToolCall, int]:
    """Parse the arguments of a call. Returns it with the position where the text continues."""
    try:
        value, end = read_json(text, start)
    except BadJson as error:
        following = _END.search(text, start)
        problem = f"the arguments are not valid JSON: {error}"
        call = bad_call(problem, index=index, expected=EXPECTED, name=name)
        return call, len(text) if following is None else following.end()
    if not isinstance(value, dict):
        problem = f"the arguments must be an object, found {kind_of(value)}"
        return bad_call(problem, index=index, expected=EXPECTED, name=name), end
    return ToolCall(name=name, arguments=value, id=call_id(index)), end
