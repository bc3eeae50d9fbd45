"""Parse rows of chat files: OpenAI ``messages``, ShareGPT ``conversations``, TRL's pairs, or Alpaca's fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from rlcore.data.forms import ROLES, alpaca_messages, is_alpaca
from rlcore.data.row_images import PART_TYPES, ImageReader, RowImages, prompt_content, take_column
from rlcore.errors import DataError
from rlcore.json_files import parse_json
from rlcore.types import Demonstration, JsonSchema, Message, Part, Role, TextPart, ToolCall, ToolSchema

UNSUPPORTED_FIELDS = {
    "reasoning_content": "move it into the content, as <think>…</think> for Qwen3",
    "function_call": "convert it to tool_calls",
    "audio": "remove it",
    "refusal": "move it into the content",
}
"""Message fields that are not supported, and how to convert them."""


def conversation(row: object, reader: ImageReader) -> tuple[Demonstration, dict[str, Any]]:
    """The conversation in a row, and the other fields of the row.

    Args:
        row: of a file or a data set
        reader: reads the images of the row

    Raises:
        DataError: the row is invalid. The caller adds file and line.
    """
    if not isinstance(row, dict):
        raise DataError("a row must be an object", found=short(row))
    fields = _joined(row)
    forms = [name for name in ("messages", "conversations") if name in fields]
    if len(forms) != 1:
        raise DataError(
            "a row needs the field 'messages' or 'conversations', both 'prompt' and 'completion', or Alpaca's fields",
            found=f"the fields {', '.join(map(str, row)) or 'none'}",
            fix="for preferences, set data.id=preferences and trainer.id=preference"
            if {"chosen", "rejected"} <= set(row)
            else "messages is a list of objects with role and content; conversations is a list of objects with from "
            "and value; prompt and completion are two lists of messages, or two strings; Alpaca's are instruction and "
            "output",
        )
    entries, (name,) = fields.pop(forms[0]), forms
    if not isinstance(entries, list) or not entries:
        raise DataError(f"the field {name!r} must be a list of messages", found=short(entries))
    tools = _tools(fields.pop("tools", None))
    system = fields.pop("system", None) if name == "conversations" else None
    speaker = "from" if name == "conversations" else "role"
    images = images_of(entries, take_column(fields), reader, speaker)
    messages: list[Message] = []
    if system:
        messages.append(Message(role="system", content=_text(system, "system")))
    for place, entry in enumerate(entries, start=1):
        try:
            messages.append(_message(entry, messages, speaker, images))
        except DataError as error:
            raise DataError(f"message {place}: {error.message}", found=error.found, fix=error.fix) from None
    if not any(message.role == "assistant" for message in messages):
        found = ", ".join(message.role for message in messages)
        raise DataError("a conversation needs an assistant message to train on", found=found)
    return Demonstration(messages=tuple(messages), tools=tools, images=images_in(messages, reader)), fields


def images_of(
    entries: Sequence[object], column: list[object] | None, reader: ImageReader, speaker: str = "role"
) -> RowImages:
    """The places of images in the messages of a row. Those of an assistant cannot have any.

    Raises:
        DataError: the row has another number of images than of places.
    """
    text = "value" if speaker == "from" else "content"
    others = [one for one in entries if isinstance(one, dict) and _role(one.get(speaker)) != "assistant"]
    return RowImages.of(reader, [one.get(text) for one in others], column)


def images_in(messages: Sequence[Message], reader: ImageReader) -> tuple[bytes, ...]:
    """The bytes of the images in messages."""
    return reader.bytes_of(name for message in messages for name in message.images)


def _role(who: object) -> Role | None:
    return "assistant" if who == "function_call" else ROLES.get(who) if isinstance(who, str) else None


def _joined(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the row, with ``prompt`` and ``completion``, or Alpaca's fields, joined into one conversation."""
    fields = dict(row)
    if is_alpaca(row) and "conversations" not in row:
        rest = {
            name: fields[name] for name in fields if name not in ("instruction", "input", "output", "history", "system")
        }
        return {"messages": alpaca_messages(row), **rest}
    if "messages" in row or "conversations" in row or not {"prompt", "completion"} <= set(row):
        return fields
    prompt, completion = fields.pop("prompt"), fields.pop("completion")
    if isinstance(prompt, str) and isinstance(completion, str):
        prompt = [{"role": "user", "content": prompt_content(prompt, fields)}]
        completion = [{"role": "assistant", "content": completion}]
    if not isinstance(prompt, list) or not isinstance(completion, list):
        kinds = f"{type(prompt).__name__} and {type(completion).__name__}"
        raise DataError("'prompt' and 'completion' must be two strings, or two lists of messages", found=kinds)
    if any(isinstance(entry, dict) and ROLES.get(str(entry.get("role"))) == "assistant" for entry in prompt):
        raise DataError(
            "'prompt' must not contain assistant messages, because all of them are trained on",
            found="an assistant message in 'prompt'",
            fix="to train on it, write the row as messages; otherwise start 'prompt' after it",
        )
    return {"messages": [*prompt, *completion], **fields}


def short(value: object) -> str:
    """A value for an error message."""
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= 120 else text[:117] + "…"


def _message(entry: object, earlier: Sequence[Message], speaker: str, images: RowImages) -> Message:
    if not isinstance(entry, dict):
        raise DataError("must be an object", found=short(entry))
    who, text = entry.get(speaker), "value" if speaker == "from" else "content"
    for key, fix in UNSUPPORTED_FIELDS.items():
        if entry.get(key):
            raise DataError(f"the field {key!r} is not supported", found=short(entry[key]), fix=fix)
    if entry.get("weight", 1) != 1:
        fix = "end the conversation before this message, or move its text into a user message"
        raise DataError("all assistant messages are trained on", found=f"weight {entry['weight']!r}", fix=fix)
    if who == "function_call":
        calls = _json(entry.get(text), "a function_call's value")
        return Message(role="assistant", tool_calls=_calls(calls if isinstance(calls, list) else [calls]))
    role = ROLES.get(who) if isinstance(who, str) else None
    if role is None:
        raise DataError(f"{speaker!r} must be one of {', '.join(ROLES)}", found=short(who))
    calls = _calls(entry.get("tool_calls") or [])
    if calls and role != "assistant":
        raise DataError("only assistant messages can have tool_calls", found=f"tool_calls of a {role} message")
    content = entry.get(text)
    if content is None and not calls:
        exception = " unless it has 'tool_calls'" if (role, text) == ("assistant", "content") else ""
        found = "null" if text in entry else f"only the fields {', '.join(map(str, entry))}"
        raise DataError(f"the {role}'s {text!r} must be a string{exception}", found=found)
    written = "" if content is None else _content(content, role, text, images)
    if role == "assistant" and not written and not calls:
        raise DataError("the assistant message is empty", found=short(content), fix="remove the message")
    if role != "tool":
        return Message(role=role, content=written, tool_calls=calls)
    id = entry.get("tool_call_id")
    previous = [call for message in earlier for call in message.tool_calls]
    if not previous:
        raise DataError("a tool message must follow a tool call", found="no earlier message with tool_calls")
    named = next((call.name for call in previous if id is not None and call.id == id), None)
    if id is not None and named is None and any(call.id for call in previous):
        raise DataError("tool_call_id must refer to an earlier call", found=f"tool_call_id {id!r}")
    name = entry.get("name") or named
    return Message(role=role, content=written, name=name, tool_call_id=None if id is None else str(id))


def _content(content: object, role: Role, name: str, images: RowImages) -> str | tuple[Part, ...]:
    return _text(content, name) if role == "assistant" else parsed_content(content, name, images)


def _text(content: object, name: str) -> str:
    """A string, or the joined text parts of a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(_texts(content if isinstance(content, list) else [content], name, ("text",)))


def _texts(parts: Sequence[object], name: str, types: Sequence[str]) -> list[str]:
    """The text of each part; an empty one for an image."""
    texts = []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("text") if isinstance(part, dict) and kind == "text" else ""
        if kind not in types or not isinstance(text, str):
            images = " and image" if "image" in types else ""
            found = f"a part of type {kind}" if isinstance(part, dict) and kind != "text" else short(part)
            raise DataError(f"{name!r} must be a string, or a list of text{images} parts", found=found)
        texts.append(text)
    return texts


def parsed_content(content: object, name: str, images: RowImages) -> str | tuple[Part, ...]:
    """The content of a message: a string, or parts if it has images.

    Raises:
        DataError: it is neither a text nor a list of text and image parts, or an image cannot be used.
    """
    entries = content if isinstance(content, list) else [content]
    texts = [content] if isinstance(content, str) else _texts(entries, name, PART_TYPES)
    parts: list[Part] = []
    for entry, text in zip(entries, texts, strict=True):
        is_image = isinstance(entry, dict) and entry.get("type") != "text"
        for part in [images.image(entry)] if is_image else images.parts(text):
            if isinstance(part, TextPart) and parts and isinstance(parts[-1], TextPart):
                part = TextPart(text=parts.pop().text + part.text)  # type: ignore[union-attr]
            parts.append(part)
    if all(isinstance(part, TextPart) for part in parts):
        return "".join(texts)
    return tuple(part for part in parts if not (isinstance(part, TextPart) and not part.text))


def _calls(entries: object) -> tuple[ToolCall, ...]:
    calls = []
    for entry, name, function in _functions(entries, "tool_calls", "a tool call needs a name and arguments"):
        arguments = function.get("arguments", {})
        if isinstance(arguments, str):
            arguments = _json(arguments, f"the arguments of {name}") if arguments.strip() else {}
        if not isinstance(arguments, dict):
            raise DataError(f"the arguments of {name} must be an object", found=short(arguments))
        calls.append(ToolCall(name=name, arguments=arguments, id=str(entry.get("id") or "")))
    return tuple(calls)


def _tools(entries: object) -> tuple[ToolSchema, ...]:
    """Tool schemas in OpenAI's format, with or without the outer ``type`` and ``function``, or as JSON text."""
    if isinstance(entries, str):
        entries = _json(entries, "the field 'tools'") if entries.strip() else None
    tools = []
    for entry, name, function in _functions(
        [] if entries is None else entries, "the field 'tools'", "a tool needs a name"
    ):
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        if not isinstance(parameters, dict):
            raise DataError(f"the parameters of the tool {name} must be a JSON schema", found=short(entry))
        schema = cast(JsonSchema, {"properties": {}, **parameters})
        tools.append(ToolSchema(name=name, description=str(function.get("description") or ""), parameters=schema))
    return tuple(tools)


def _functions(entries: object, what: str, needs: str) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Each entry of a list with the name and the object of its function, which may be the entry itself."""
    if not isinstance(entries, list):
        raise DataError(f"{what} must be a list", found=short(entries))
    for entry in entries:
        function = entry.get("function", entry) if isinstance(entry, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name or not isinstance(function, dict):
            raise DataError(needs, found=short(entry))
        yield entry, name, function


def _json(text: object, what: str) -> object:
    try:
        return parse_json(cast(str, text))
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError(f"{what} must be valid JSON", found=f"{error}: {short(text)}") from None
