"""Correct the types of arguments with the schemas of tools, for formats that do not mark types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rlcore.types import Message, ToolCall, ToolSchema

_KINDS = {bool: {"boolean"}, int: {"integer", "number"}, float: {"number"}, str: {"string"}, tuple: {"array"}}
_KINDS |= {type(None): {"null"}}
_ALL = frozenset(("object",)).union(*_KINDS.values())
DEEPEST = 32
"""Maximum nesting of a schema and its references. What is deeper accepts every type."""


def with_declared_types(message: Message, tools: Iterable[ToolSchema]) -> Message:
    """Return the message with arguments as they were written where a tool declares text, and not the value read."""
    if not any(call.texts for call in message.tool_calls):
        return message
    schemas = {tool.name: tool.parameters for tool in tools}
    return replace(
        message, tool_calls=tuple(_corrected(call, schemas.get(call.name, {})) for call in message.tool_calls)
    )


def _corrected(call: ToolCall, parameters: Mapping[str, Any]) -> ToolCall:
    values, properties = dict(call.arguments or {}), parameters.get("properties", {})
    types = _Types(parameters)
    for name, text in (call.texts or {}).items():
        accepted = types.of(properties.get(name, {}))
        if "string" in accepted and not accepted & _kinds(values[name]):
            values[name] = text
    return replace(call, arguments=values if call.arguments is not None else None, texts=None)


def _kinds(value: Any) -> set[str]:
    return _KINDS.get(type(value), {"object"})


class _Types:
    """The JSON types that parts of a schema accept; all of them where it does not say."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._referred: dict[str, frozenset[str]] = {}

    def of(self, schema: Any, depth: int = 0) -> frozenset[str]:
        """Return the types that a schema accepts."""
        if not isinstance(schema, Mapping) or depth > DEEPEST:
            return _ALL
        accepted = _ALL
        if declared := schema.get("type"):
            accepted &= {declared} if isinstance(declared, str) else set(declared)
        for values in (schema.get("enum"), (schema["const"],) if "const" in schema else None):
            if values:
                accepted &= set[str]().union(*map(_kinds, values))
        for options in (schema.get("anyOf"), schema.get("oneOf")):
            if options:
                accepted &= frozenset[str]().union(*(self.of(option, depth + 1) for option in options))
        for part in schema.get("allOf", ()):
            accepted &= self.of(part, depth + 1)
        if isinstance(reference := schema.get("$ref"), str):
            accepted &= self._of_reference(reference, depth + 1)
        return accepted

    def _of_reference(self, reference: str, depth: int) -> frozenset[str]:
        if reference not in self._referred:
            self._referred[reference] = _ALL  # also inside of itself
            start, *path = reference.split("/")
            found: Any = self._root if start == "#" else None
            for key in path:
                key = key.replace("~1", "/").replace("~0", "~")
                found = found.get(key) if isinstance(found, Mapping) else None
            self._referred[reference] = self.of(found, depth)
        return self._referred[reference]


__all__ = ["with_declared_types"]
