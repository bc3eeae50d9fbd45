"""The tool of the agents."""

import re
from fractions import Fraction


def calculator(expression: str) -> str:
    """Compute an expression.

    Args:
        expression: numbers with + - * and /, such as 48/2+3
    """
    if not re.fullmatch(r"\d{1,9}([-+*/]\d{1,9}){0,20}", expression):
        return "error: write numbers with + - * and / between them"
    total = Fraction()
    try:
        for sign, product in re.findall(r"(^|[-+])([^-+]+)", expression):
            first, *others = re.split(r"([*/])", product)
            value = Fraction(first)
            for operator, number in zip(others[::2], others[1::2], strict=True):
                value = value * int(number) if operator == "*" else value / int(number)
            total += -value if sign == "-" else value
    except ZeroDivisionError:
        return "error: division by zero"
    return str(total)


def right(answer, task) -> float:
    """1 if the last number of the answer is that of the task, and 0 otherwise."""
    return float(re.findall(r"[\d/]+", str(answer))[-1:] == [str(task.fields["answer"])])
