"""Calculator calls in the notation of GSM8K: ``<<48/2>>`` instead of about thirty tokens of JSON."""

from __future__ import annotations

import re
from itertools import pairwise

from rlcore.errors import UserError
from rlcore.types import ToolCall

from rl_plugin_gsm8k_tools.calculator import calculator

MOST_CALLS = 32
"""Maximum number of calls in a turn. The rest of the turn is left as text."""
_ANNOTATION = re.compile(r"<<([^<>\n]*)(>>)?")


class AnnotationParser:
    """Parses every ``<<expression>>`` of a turn as a call of the calculator; one that is not closed has an error."""

    def parse(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Return the text without the calls, and all calls in order."""
        found = list(_ANNOTATION.finditer(text))[:MOST_CALLS]
        if not found:
            return text, ()
        pieces = [text[end.end() : start.start()] for end, start in pairwise(found)]
        pieces = [text[: found[0].start()], *pieces, text[found[-1].end() :]]
        calls = tuple(_call(match, index) for index, match in enumerate(found))
        return "\n".join(piece for piece in map(str.strip, pieces) if piece), calls

    def render(self, call: ToolCall) -> str:
        """Return the text of a call as the model should write it.

        Raises:
            UserError: the call is not one of the calculator.
        """
        arguments = dict(call.arguments or {})
        expression = arguments.pop("expression", None)
        if call.name != calculator.name or not isinstance(expression, str) or arguments:
            raise UserError(
                "the tool parser gsm8k writes only calls of the calculator",
                found=f"a call of {call.name!r} with {', '.join(call.arguments or {}) or 'no arguments'}",
                where="model.tool_parser",
                fix="set model.tool_parser=auto",
            )
        return f"<<{expression}>>"


def _call(match: re.Match[str], index: int) -> ToolCall:
    id = f"call_{index}"
    if match[2] is None:
        return ToolCall(name=calculator.name, error="the annotation is not closed; expected <<expression>>", id=id)
    return ToolCall(name=calculator.name, arguments={"expression": match[1].strip()}, id=id)
