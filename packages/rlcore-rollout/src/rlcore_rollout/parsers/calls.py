"""Parses tool calls from model-written JSON and reports errors in them."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from rlcore.types import ToolCall, thaw

_NAME = re.compile(r'"name"\s{0,8}:\s{0,8}"([^"\\]{1,64})"')


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"the number {number[:40]} is too large")
    return value


_decoder = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)


class BadJson(Exception):
    """Invalid JSON. The message contains the position and the reason."""


def read_json(text: str, start: int) -> tuple[Any, int]:
    """Parse the JSON value at ``start``, after white space, and return it with its end. Raises `BadJson`."""
    while start < len(text) and text[start] in " \t\r\n":
        start += 1
    try:
        return _decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        reason = error.msg.removesuffix(" at")  # as in "Unterminated string starting at"
        raise BadJson(f"{reason} at character {error.pos - start}") from None
    except RecursionError:
        raise BadJson("it is nested too deeply") from None
    except ValueError as error:  # a number with thousands of digits, NaN or infinity
        raise BadJson(str(error)) from None


class JsonCalls:
    """Calls whose arguments are a JSON object, which ends where its braces close, whatever its texts contain."""

    opening = "{"

    def end_of_call(self, text: str, start: int) -> int | None:
        """Return the end of the object after its brace; None if it is not JSON."""
        try:
            return read_json(text, start - 1)[1]
        except BadJson:
            return None


def call_of(value: Any, *, index: int, arguments_key: str = "arguments", expected: str) -> ToolCall:
    """Return the call that a JSON value describes, or a call with an ``error`` if the value is not a valid call."""
    if not isinstance(value, dict):
        return bad_call(f"the call is {kind_of(value)}, not an object", index=index, expected=expected)
    name = value.get("name")
    if not isinstance(name, str) or not name:
        found = f"found {kind_of(name)}" if "name" in value else f"the keys are {_keys(value)}"
        return bad_call(f'"name" must be the name of a tool, {found}', index=index, expected=expected)
    if arguments_key not in value:
        problem = f'"{arguments_key}" is missing, the keys are {_keys(value)}'
        return bad_call(problem, index=index, expected=expected, name=name)
    arguments = value[arguments_key]
    if not isinstance(arguments, dict):
        problem = f'"{arguments_key}" must be an object, found {kind_of(arguments)}'
        return bad_call(problem, index=index, expected=expected, name=name)
    return ToolCall(name=name, arguments=arguments, id=call_id(index))


def bad_call(problem: str, *, index: int, expected: str, name: str = "", body: str = "") -> ToolCall:
    """Return a call that could not be parsed. An omitted name is searched for at the beginning of ``body``."""
    if not name and (match := _NAME.search(body[:400])):
        name = match.group(1)
    return ToolCall(name=name, error=f"{problem}; expected {expected}", id=call_id(index))


def call_id(index: int) -> str:
    """Return the id of the call at this index of a turn."""
    return f"call_{index}"


def to_json(value: Any) -> str:
    """Return the JSON of a call's arguments in the form that chat templates use."""
    return json.dumps(thaw(value), ensure_ascii=False)


def kind_of(value: Any) -> str:
    """Return the JSON name of a value's type, with its article."""
    names = {
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        list: "an array",
        dict: "an object",
    }
    return names.get(type(value), "null")


def _keys(value: dict[str, Any]) -> str:
    return ", ".join(f'"{key[:40]}"' for key in list(value)[:5]) or "none"
