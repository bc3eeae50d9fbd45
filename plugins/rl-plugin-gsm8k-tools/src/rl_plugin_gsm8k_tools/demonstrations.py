"""Convert solutions into conversations with the calculator.

GSM8K annotates each calculation of a solution: ``sold 48/2 = <<48/2=24>>24``. An annotation becomes a tool call, the
text before it the content of that turn, and the result the next message. The expression in front of its annotation is
dropped, because the call repeats it. The last turn ends with ``#### N``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rlcore.episodes.tool import ToolError
from rlcore.types import Message, ToolCall

from rl_plugin_gsm8k_tools.calculator import evaluate, format_value

FINAL = re.compile(r"####\s*(.+?)\s*\Z")
_ANNOTATION = re.compile(r"<<([^<>]*)>>")
_WRITTEN_OUT = re.compile(r"(?<![\w$.])[\d\s$.,%()+\-*/x×÷]*=\s*\$?\s*\Z")
_IGNORED = re.compile(r"[\s$,]")


class UnusableSolution(ValueError):
    """A solution that cannot be converted into a demonstration. The message gives the reason."""


def final_message(answer: str) -> Message:
    """The last turn, which states the answer."""
    return Message(role="assistant", content=f"#### {answer}")


def call_message(text: str, expression: str, *, id: str) -> Message:
    """A turn that calls the calculator."""
    call = ToolCall(name="calculator", arguments={"expression": expression}, id=id)
    return Message(role="assistant", content=text, tool_calls=(call,))


def demonstrate(question: str, solution: str, answer: str) -> tuple[Message, ...]:
    """The conversation of an annotated solution.

    Raises:
        UnusableSolution: there is no annotation, or the result of one is wrong.
    """
    messages = [Message(role="user", content=question)]
    body = FINAL.sub("", solution)
    annotations = list(_ANNOTATION.finditer(body))
    if not annotations:
        raise UnusableSolution("the solution has no <<…>> annotation")
    before = 0
    for index, annotation in enumerate(annotations):
        expression, equals, stated = annotation[1].partition("=")
        try:
            value = evaluate(expression)
            agrees = bool(equals) and _agree(stated, format_value(value))
        except ToolError as error:
            raise UnusableSolution(f"the annotation <<{annotation[1]}>> cannot be computed: {error}") from None
        if not agrees:
            raise UnusableSolution(f"the annotation <<{annotation[1]}>> should be {format_value(value)}")
        text = _without_expression(body[before : annotation.start()], expression)
        id = f"call_{index}"
        messages.append(call_message(text, expression.strip(), id=id))
        messages.append(Message(role="tool", content=format_value(value), name="calculator", tool_call_id=id))
        before = annotation.end()
    rest = body[before:].strip()
    messages.append(Message(role="assistant", content=f"{rest}\n#### {answer}".lstrip()))
    return tuple(messages)


def calculations(messages: Iterable[Message]) -> int:
    """The number of tool calls in a conversation."""
    return sum(len(message.tool_calls) for message in messages)


def messages_of(fields: Mapping[str, Any]) -> tuple[Message, ...] | None:
    """The conversation in the field ``demonstration`` of a prepared row; None if there is none."""
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


def _without_expression(text: str, expression: str) -> str:
    """The text before an annotation, without the same expression and its equals sign at the end."""
    if match := _WRITTEN_OUT.search(text):
        written = match[0].rpartition("=")[0].replace("x", "*").replace("×", "*").replace("÷", "/")
        if _IGNORED.sub("", written) == _IGNORED.sub("", expression):
            return text[: match.start()].strip()
    return text.strip()


def _agree(stated: str, computed: str) -> bool:
    """Whether the stated result equals the computed one, up to rounding to the stated decimals."""
    wanted, found = evaluate(stated), evaluate(computed)
    decimals = len(stated.strip().partition(".")[2].rstrip("%"))
    tolerance = 10**-decimals if decimals else 0
    return wanted == found or abs(wanted - found) < tolerance
