"""The tool."""

from __future__ import annotations

import operator
import re

from rlcore import ToolError, tool

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
FORM = re.compile(r"(\d{1,6})([-+*/])(\d{1,6})(?:([-+*/])(\d{1,6}))?")
"""Text of a model is hostile: it is matched, with at most six digits for a number, and never evaluated."""


@tool(timeout_s=2)  # a call that takes longer is an error that the model reads
def calculator(expression: str) -> int:
    """Compute with two or three whole numbers, from left to right.

    Args:
        expression: Such as 12*7 or 12*7+1.
    """
    # The model sees the name, the text above and the types. A ToolError is its chance to correct the call; any other
    # exception except ValueError and ArithmeticError is a failure of the tool, and the trajectory is not scored.
    match = FORM.fullmatch(expression.replace(" ", ""))
    if match is None:
        raise ToolError(f"{expression[:40]!r} is not two or three whole numbers with + - * / between them")
    first, *rest = match.groups()
    result = int(first)
    for sign, number in (rest[:2], rest[2:]):
        if sign is not None:
            result = OPERATIONS[sign](result, int(number))
    return result
