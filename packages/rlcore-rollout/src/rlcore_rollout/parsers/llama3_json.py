"""Parses calls from turns that consist only of bare JSON objects: Llama 3."""

from __future__ import annotations

import re

from rlcore.types import ToolCall

from rlcore_rollout.parsers.calls import BadJson, JsonCalls, bad_call, call_of, read_json, to_json

TAG = "<|python_tag|>"
EXPECTED = '{"name": <tool name>, "parameters": {...}}'
_BEGINS_CALL = re.compile(r'\{\s*"(?:name|type|parameters)"')


class Llama3JsonParser(JsonCalls):
    """Parses turns that begin like ``{"name":`` or with ``<|python_tag|>``.

    Their calls are separated by ``;`` or white space. Every other turn is text, including JSON of another shape.
    """

    def parse(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Return the text without the calls, and all calls in order. Unreadable calls have ``error`` set."""
        body = text.strip()
        tagged = body.startswith(TAG)
        body = body.removeprefix(TAG)
        if not tagged and not _BEGINS_CALL.match(body):
            return text, ()
        calls: list[ToolCall] = []
        position = 0
        while position < len(body):
            if body[position].isspace() or body[position] == ";":
                position += 1
                continue
            try:
                value, position = read_json(body, position)
            except BadJson as error:  # the start of the object after an unreadable one is unknown
                problem = f"the call is not valid JSON: {error}"
                rest = body[position:]
                calls.append(bad_call(problem, index=len(calls), expected=EXPECTED, body=rest))
                break
            calls.append(call_of(value, index=len(calls), arguments_key="parameters", expected=EXPECTED))
        if not calls:
            calls.append(bad_call(f"nothing follows {TAG}", index=0, expected=EXPECTED))
        return "", tuple(calls)

    def render(self, call: ToolCall) -> str:
        """Return the text of a call as the model should write it."""
        return f'{{"name": {to_json(call.name)}, "parameters": {to_json(call.arguments or {})}}}'
