"""Parses calls from ``Action:`` and ``Action Input:`` lines (ReAct, https://arxiv.org/abs/2210.03629)."""

from __future__ import annotations

from rlcore.types import ToolCall

from rlcore_rollout.parsers.calls import BadJson, JsonCalls, bad_call, call_id, kind_of, read_json, to_json

EXPECTED = 'a line "Action: <tool name>" and a line "Action Input: {...}" with the arguments as a JSON object'
_ACTION, _INPUTS = "action:", ("action input:", "input:")
_ENDS_INPUT = (_ACTION, *_INPUTS, "thought:", "observation:", "final answer:")


class ReactParser(JsonCalls):
    """Parses every action of a turn. The input may span several lines, up to the next label. Other lines are text."""

    def parse(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Return the text without the calls, and all calls in order. Unreadable calls have ``error`` set."""
        kept: list[str] = []
        calls: list[ToolCall] = []
        action: str | None = None
        lines = text.split("\n")
        position = 0

        def leave() -> None:
            """Record an action without an input."""
            if action is not None:
                problem = f'"Action: {action[:64]}" has no "Action Input:" line'
                calls.append(bad_call(problem, index=len(calls), expected=EXPECTED, name=action))

        while position < len(lines):
            line = lines[position]
            position += 1
            label = _label(line)
            if label == _ACTION:
                leave()
                action = _after_label(line)
            elif label in _INPUTS and (label == _INPUTS[0] or action is not None):
                body = [_after_label(line)]
                while position < len(lines) and _label(lines[position]) not in _ENDS_INPUT:
                    body.append(lines[position])
                    position += 1
                calls.append(_read_call(action, "\n".join(body), len(calls)))
                action = None
            else:
                kept.append(line)
        leave()
        return ("\n".join(kept).strip() if calls else text), tuple(calls)

    def render(self, call: ToolCall) -> str:
        """Return the text of a call as the model should write it."""
        return f"Action: {call.name}\nAction Input: {to_json(call.arguments or {})}"


def _label(line: str) -> str | None:
    start = line[:64].lstrip().lower()
    if not start.startswith(_ENDS_INPUT):
        return None
    return next(label for label in _ENDS_INPUT if start.startswith(label))


def _after_label(line: str) -> str:
    return line.split(":", 1)[1].strip()


def _read_call(name: str | None, body: str, index: int) -> ToolCall:
    if not name:
        return bad_call('the "Action Input:" follows no "Action:" with a name', index=index, expected=EXPECTED)
    try:
        value, end = read_json(body, 0)
    except BadJson as error:
        problem = f"the input is not valid JSON: {error}"
        return bad_call(problem, index=index, expected=EXPECTED, name=name)
    if rest := body[end:].strip():
        problem = f"there is text after the input's JSON: {rest[:40]!r}"
        return bad_call(problem, index=index, expected=EXPECTED, name=name)
    if not isinstance(value, dict):
        problem = f"the input must be a JSON object, found {kind_of(value)}"
        return bad_call(problem, index=index, expected=EXPECTED, name=name)
    return ToolCall(name=name, arguments=value, id=call_id(index))
