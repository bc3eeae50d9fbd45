"""Correct the types of arguments with the schemas of tools, for formats that do not mark types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rlcore.types import Message, ToolCall, ToolSchema

_KINDS = {bool: {"boolean"}, int: {"integer", "number"}, float: {"number"}, tuple: {"array"}, type(None): {"null"}}


def with_declared_types(message: Message, tools: Iterable[ToolSchema]) -> Message:
    """Return the message with arguments as they were written where a tool declares text, and not the value read."""
    if not any(call.texts for call in message.tool_calls):
        return message
    schemas = {tool.name: tool.parameters.get("properties", {}) for tool in tools}
    return replace(
        message, tool_calls=tuple(_corrected(call, schemas.get(call.name, {})) for call in message.tool_calls)
    )


def _corrected(call: ToolCall, properties: Mapping[str, Any]) -> ToolCall:
    values = dict(call.arguments or {})
    for name, text in (call.texts or {}).items():
        accepted = _types(properties.get(name, {}))
        if "string" in accepted and not accepted & _KINDS.get(type(values[name]), {"object"}):
            values[name] = text
    return replace(call, arguments=values if call.arguments is not None else None, texts=None)


def _types(schema: Mapping[str, Any]) -> set[str]:
    """Return the JSON types that a schema accepts."""
    declared = schema.get("type", ())
    found = {declared} if isinstance(declared, str) else set(declared)
    return found.union(*(_types(option) for option in schema.get("anyOf", ())))


__all__ = ["with_declared_types"]
