"""Chat messages, in the chat-completions convention."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rlcore.types.frozen import freeze, thaw

Role = Literal["system", "user", "assistant", "tool"]
JsonSchema = Mapping[str, Any]


def media_hash(data: bytes) -> str:
    """Return the image name used in messages, segments and the blob store: its SHA-256, 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """Text in a message."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePart:
    """An image in a message, by content hash. The bytes are in the ``images`` of the task or the observation."""

    sha256: str

    @classmethod
    def of(cls, data: bytes) -> ImagePart:
        """Return the part that refers to the image with these encoded bytes."""
        return cls(sha256=media_hash(data))


Part = TextPart | ImagePart


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One tool call of the model.

    A call that could not be parsed has ``arguments=None`` and the reason in ``error``, which is shown to the model.
    """

    name: str
    arguments: Mapping[str, Any] | None = None
    error: str | None = None
    id: str = ""
    texts: Mapping[str, str] | None = None
    """The arguments that were read as other values than texts, as they were written, in a format that does not mark
    types. None once they have the types that the tool declares."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", freeze(self.arguments))
        object.__setattr__(self, "texts", freeze(self.texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat."""

    role: Role
    content: str | tuple[Part, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    name: str | None = None
    """Name of the tool, in a ``tool`` message."""
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """All text parts, concatenated."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def images(self) -> tuple[str, ...]:
        """Content hashes of the image parts, in order."""
        if isinstance(self.content, str):
            return ()
        return tuple(part.sha256 for part in self.content if isinstance(part, ImagePart))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchema:
    """Description of a tool for the model, in OpenAI's function form."""

    name: str
    description: str
    parameters: JsonSchema
    """A JSON schema of type ``object``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", freeze(self.parameters))

    def as_json(self) -> dict[str, Any]:
        """Return ``{"type": "function", "function": {…}}``."""
        function = {"name": self.name, "description": self.description, "parameters": thaw(self.parameters)}
        return {"type": "function", "function": function}
