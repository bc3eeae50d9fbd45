"""What actions a server takes, by the JSON schemas that it sends, which are not trusted."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore.endpoints.answers import excerpt
from rlcore.errors import EnvironmentFailure, did_you_mean
from rlcore.plain_json import whole
from rlcore.types import ToolCall, ToolSchema

ACT = "act"
"""The tool of a server whose action is neither a text nor a call."""
OWN_FIELDS = frozenset({"metadata"})
"""Fields of every action of OpenEnv, which the model does not set."""
MOST_TOOLS = 128
LONGEST_SCHEMA = 100_000
"""Characters of a schema, after references are replaced."""
LONGEST_DESCRIPTION = 4_000
MOST_NESTED = 12
"""Limit of nested references."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class TextAction:
    """The answer of the model is the action, in this field."""

    field: str


@dataclass(frozen=True, slots=True)
class FormAction:
    """The model calls a tool whose arguments are the action."""

    tool: ToolSchema


@dataclass(frozen=True, slots=True)
class CallAction:
    """The model calls tools that the server lists, in the manner of MCP."""


Action = TextAction | FormAction | CallAction


def action_of(schema: object) -> Action:
    """The kind of action with this schema.

    Raises:
        EnvironmentFailure: it is not the schema of an object.
    """
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties", {}), Mapping):
        raise EnvironmentFailure(f"the schema of the action is not that of an object: {excerpt(repr(schema))}")
    names = set(schema.get("properties", {})) - OWN_FIELDS
    if names <= {"type", "tool_name", "arguments"}:
        return CallAction()
    parameters = parameters_of(schema, leave_out=OWN_FIELDS)
    if len(names) == 1:
        (name,) = names
        if _is_text(parameters["properties"][name]):
            return TextAction(name)
    text = schema.get("description")
    description = text if isinstance(text, str) and text else "Act in the environment."
    return FormAction(ToolSchema(name=ACT, description=_short(description), parameters=parameters))


def tools_of(listed: object) -> tuple[ToolSchema, ...]:
    """The tools that a server lists.

    Raises:
        EnvironmentFailure: they cannot be shown to a model.
    """
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_TOOLS:
        raise EnvironmentFailure(f"the server must list 1 to {MOST_TOOLS} tools: {excerpt(repr(listed))}")
    tools = [_tool(one) for one in listed]
    if len({tool.name for tool in tools}) < len(tools):
        names = ", ".join(tool.name for tool in tools)
        raise EnvironmentFailure(f"the tools of the server need different names: {excerpt(names)}")
    return tuple(tools)


def _tool(listed: object) -> ToolSchema:
    found = listed if isinstance(listed, Mapping) else {}
    name, text = found.get("name"), found.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise EnvironmentFailure(f"the server lists a tool without a usable name: {excerpt(repr(listed))}")
    schemas = (found.get(key) for key in ("input_schema", "inputSchema", "parameters"))
    schema: object = next(filter(None, schemas), {})
    return ToolSchema(
        name=name, description=_short(text if isinstance(text, str) else ""), parameters=parameters_of(schema)
    )


def parameters_of(schema: object, *, leave_out: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The schema of the arguments of a tool, with its references replaced.

    Raises:
        EnvironmentFailure: it is not the schema of an object, or too large.
    """
    given = schema if isinstance(schema, Mapping) else None
    properties = given.get("properties", {}) if given is not None else None
    required = given.get("required", []) if given is not None else None
    if not isinstance(properties, Mapping) or not isinstance(required, Sequence):
        raise EnvironmentFailure(f"the schema of a tool is not that of an object: {excerpt(repr(schema))}")
    replaced = _Replaced(given or {})
    return {
        "type": "object",
        "properties": {
            name: replaced.of(value)
            for name, value in properties.items()
            if name not in leave_out and isinstance(value, Mapping)
        },
        "required": [name for name in required if name in properties and name not in leave_out],
    }


class _Replaced:
    """Schemas with the definitions that they refer to in place of the references."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._definitions = root.get("$defs")
        self._characters = 0

    def of(self, schema: Any, depth: int = 0) -> Any:
        if isinstance(schema, Mapping):
            reference = schema.get("$ref")
            if isinstance(reference, str):
                return self.of(self._definition(reference, depth), depth + 1)
            return {whole(key): self.of(value, depth) for key, value in schema.items()}
        if isinstance(schema, (list, tuple)):
            return [self.of(item, depth) for item in schema]
        value = whole(schema) if isinstance(schema, str) else schema
        self._characters += len(value) if isinstance(value, str) else 8
        if self._characters > LONGEST_SCHEMA:
            raise EnvironmentFailure(f"the schema of an action has more than {LONGEST_SCHEMA:,} characters")
        return value

    def _definition(self, reference: str, depth: int) -> Any:
        name = reference.rpartition("/")[2]
        known = self._definitions.get(name) if isinstance(self._definitions, Mapping) else None
        if not isinstance(known, Mapping) or depth >= MOST_NESTED:
            raise EnvironmentFailure(f"a schema refers to {excerpt(reference)!r}, which cannot be replaced")
        return known


def _is_text(schema: Mapping[str, Any]) -> bool:
    kinds = [schema.get("type")]
    if isinstance(options := schema.get("anyOf"), list):
        kinds = [option.get("type") for option in options if isinstance(option, Mapping)]
    return "string" in kinds and set(kinds) <= {"string", "null"}


def _short(text: str) -> str:
    return whole(text.strip()[:LONGEST_DESCRIPTION])


def mistake_in(call: ToolCall, tools: Collection[str]) -> str:
    """The message to the model about a call that cannot be made; empty for one that can."""
    if call.error is not None or call.arguments is None:
        return f"Error: the call could not be read: {call.error or 'no arguments'}"
    if call.name in tools:
        return ""
    names, hint = ", ".join(sorted(tools)) or "none", did_you_mean(call.name, tools)
    return f"Error: there is no tool {call.name[:64]!r}{f' ({hint})' if hint else ''}. The tools are: {names}."


__all__ = ["Action", "CallAction", "FormAction", "TextAction", "action_of", "mistake_in", "parameters_of", "tools_of"]
