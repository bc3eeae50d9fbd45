"""Solutions as conversations with the calculator.

GSM8K's authors marked each computation of a solution: ``48/2 = <<48/2=24>>24``. A mark becomes a call, what stood
before it the text of that turn, and the calculator's answer the next message; the last turn states ``#### N``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlcore.tool import ToolError
from rlcore.types import Message, ToolCall

from rl_plugin_gsm8k_tools.calculator import evaluate, show

FINAL = re.compile(r"####\s*(.+?)\s*\Z")
_MARK = re.compile(r"<<([^<>]*)>>")


class UnusableSolution(ValueError):
    """A solution that cannot become a demonstration, and why."""


def final_message(answer: str) -> Message:
    """The last turn."""
    return Message(role="assistant", content=f"#### {answer}")


def call_message(text: str, expression: str, *, id: str) -> Message:
    """A turn that calls the calculator."""
    call = ToolCall(name="calculator", arguments={"expression": expression}, id=id)
    return Message(role="assistant", content=text, tool_calls=(call,))


def demonstrate(question: str, solution: str, answer: str) -> tuple[Message, ...]:
    """The conversation of a marked solution.

    Raises:
        UnusableSolution: there is no mark, or one whose expression does not compute to what stands behind its ``=``.
    """
    messages = [Message(role="user", content=question)]
    body = FINAL.sub("", solution)
    marks = list(_MARK.finditer(body))
    if not marks:
        raise UnusableSolution("the solution has no <<…>> mark")
    before = 0
    for index, mark in enumerate(marks):
        expression, equals, stated = mark[1].partition("=")
        try:
            value = evaluate(expression)
            agrees = bool(equals) and _agree(stated, show(value))
        except ToolError as error:
            raise UnusableSolution(f"the mark <<{mark[1]}>> does not compute: {error}") from None
        if not agrees:
            raise UnusableSolution(f"the mark <<{mark[1]}>> computes to {show(value)}")
        text = body[before : mark.start()].strip()
        id = f"call_{index}"
        messages.append(call_message(text, expression.strip(), id=id))
        messages.append(Message(role="tool", content=show(value), name="calculator", tool_call_id=id))
        before = mark.end()
    rest = body[before:].strip()
    messages.append(Message(role="assistant", content=f"{rest}\n#### {answer}".lstrip()))
    return tuple(messages)


def messages_of(fields: Mapping[str, Any]) -> tuple[Message, ...] | None:
    """The conversation that a prepared row carries in ``demonstration``, None where there is none."""
    rows = fields.get("demonstration")
    if not rows:
        return None
    messages = []
    for row in rows:
        calls = tuple(
            ToolCall(name=call["name"], arguments=call["arguments"], id=call["id"])
            for call in row.get("tool_calls", ())
        )
        messages.append(
            Message(
                role=row["role"],
                content=row["content"],
                tool_calls=calls,
                name=row.get("name"),
                tool_call_id=row.get("tool_call_id"),
            )
        )
    return tuple(messages)


def as_rows(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """The inverse of `messages_of`, for JSON."""
    rows: list[dict[str, Any]] = []
    for message in messages:
        row: dict[str, Any] = {"role": message.role, "content": message.text}
        if message.tool_calls:
            calls = [{"name": c.name, "arguments": dict(c.arguments or {}), "id": c.id} for c in message.tool_calls]
            row["tool_calls"] = calls
        if message.role == "tool":
            row |= {"name": message.name, "tool_call_id": message.tool_call_id}
        rows.append(row)
    return rows


def _agree(stated: str, computed: str) -> bool:
    """Whether a mark's own result is the computed one, or its rounding to the decimals that the mark shows."""
    wanted, found = evaluate(stated), evaluate(computed)
    decimals = len(stated.strip().partition(".")[2].rstrip("%"))
    tolerance = 10**-decimals if decimals else 0
    return wanted == found or abs(wanted - found) < tolerance
