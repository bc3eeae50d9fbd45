"""The prompt of a task as messages of the chat-completions API."""

from __future__ import annotations

import json
from typing import Any

from rlcore.images import data_uri
from rlcore.types import Message, Task, TextPart, media_hash
from rlcore.types.frozen import thaw


def chat_messages(task: Task) -> list[dict[str, Any]]:
    """The messages of a task, with its images as data URIs."""
    images = {media_hash(image): image for image in task.images}
    return [_message(message, images) for message in task.messages]


def _message(message: Message, images: dict[str, bytes]) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": _content(message, images)}
    if message.tool_call_id is not None:
        made["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        made["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(thaw(call.arguments or {}))},
            }
            for call in message.tool_calls
        ]
    return made


def _content(message: Message, images: dict[str, bytes]) -> str | list[dict[str, Any]]:
    if isinstance(message.content, str) or not message.images:
        return message.text
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, TextPart)
        else {"type": "image_url", "image_url": {"url": data_uri(images[part.sha256])}}
        for part in message.content
    ]
