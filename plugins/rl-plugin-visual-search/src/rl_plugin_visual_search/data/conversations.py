"""Rows of recorded conversations with code and pictures, for supervised training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlcore import DataError, Demonstration, Message
from rlcore.data.chat_rows import conversation
from rlcore.data.row_images import ImageReader

from rl_plugin_visual_search.data.rows import Reason, UnusableRow
from rl_plugin_visual_search.grammar import parse

FORMS = {"messages": "role", "conversations": "from"}
"""The field with the messages, and the key of their author."""
OTHER_FIELDS = ("system", "tools", "images", "image")
SHOWN_BY_THE_SANDBOX = ("observation", "tool", "ipython", "interpreter", "function_response")
"""Roles of a result in other systems. Here it is a message of a user, as in the environment."""


def is_conversation(value: object) -> bool:
    """Return whether a row has a list of messages, with the model's turns."""
    return isinstance(value, Mapping) and any(isinstance(value.get(form), list) for form in FORMS)


def conversation_of(value: Mapping[str, Any], reader: ImageReader) -> Demonstration:
    """Read a row of messages and pictures, in OpenAI's or ShareGPT's form, with ``<image>`` at each picture's place.

    Its turns are those that the environment would accept: code, or a call of a tool, and at last an answer. White space
    at the end of a turn is removed, because the environment ends a turn at ``</code>``.

    Args:
        value: the row
        reader: reads the pictures

    Raises:
        UnusableRow: the row is invalid, a picture is missing, or a turn has another form.
    """
    row = {key: each for key, each in value.items() if each is not None}
    form = next(form for form in FORMS if isinstance(row.get(form), list))
    row[form] = [_shown_as_user(entry, FORMS[form]) for entry in row[form]]
    if "images" not in row and "image" not in row and "image_path" in row:
        row["images"] = row.pop("image_path")
    try:
        read, _ = conversation({key: row[key] for key in (form, *OTHER_FIELDS) if key in row}, reader)
    except DataError as error:
        found = ": ".join(filter(None, (error.message, error.found)))
        raise UnusableRow(Reason.CONVERSATION, found) from None
    messages = tuple(map(_trimmed, read.messages))
    turns = [message for message in messages if message.role == "assistant"]
    for number, turn in enumerate(turns, start=1):
        action = parse(turn.text)
        is_last = turn is messages[-1]
        if action.answer is not None if is_last else action.code is not None or turn.tool_calls:
            continue
        wanted = "no answer" if is_last else "no code"
        found = f"turn {number} of {len(turns)} has {wanted}: {action.problem or 'it answers'}"
        raise UnusableRow(Reason.TURN, found)
    if messages[-1].role != "assistant":
        raise UnusableRow(Reason.TURN, f"the conversation ends with a message of role {messages[-1].role}")
    return replace(read, messages=messages)


def _shown_as_user(entry: object, key: str) -> object:
    if isinstance(entry, Mapping) and entry.get(key) in SHOWN_BY_THE_SANDBOX and not entry.get("tool_call_id"):
        return {**entry, key: "user"}
    return entry


def _trimmed(message: Message) -> Message:
    if message.role != "assistant" or not isinstance(message.content, str):
        return message
    return replace(message, content=message.content.rstrip())


__all__ = ["conversation_of", "is_conversation"]
