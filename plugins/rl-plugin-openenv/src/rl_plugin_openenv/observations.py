"""What the model sees of an observation: the text of its fields, and its images."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlcore.errors import EnvironmentFailure
from rlcore.plain_json import whole
from rlcore.types import ImagePart, Message, Observation, Part, Role, TextPart

LONGEST_TEXT = 200_000
"""Characters of an observation. A longer one is a failure, because a cut could remove what matters."""
MOST_IMAGES = 16
SHORTEST_IMAGE = 64
"""Characters of the base64 text of an image. Shorter texts can be words."""
STARTS = ("data:image/", "iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
"""Beginnings of the texts of images: a data URI, or base64 of PNG, JPEG, GIF or WebP."""
UNSHOWN = frozenset({"metadata", "done", "reward"})
"""Fields of every observation of OpenEnv."""


@dataclass(slots=True)
class Shown:
    """Texts and images in order."""

    texts: list[str] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The texts, one on a line."""
        return "\n".join(filter(None, self.texts))


class Viewer:
    """Shows observations.

    Args:
        show: names of the fields; empty shows all but those of every observation
        pictures: whether the model sees images. If not, ``[image]`` is written in place of each
    """

    def __init__(self, show: Sequence[str], *, pictures: bool) -> None:
        self._show, self._pictures = tuple(show), pictures

    def shown(self, observation: Mapping[str, Any]) -> Shown:
        """The fields of an observation. The texts of ``metadata`` are shown if there is nothing else.

        Raises:
            EnvironmentFailure: it is too long, or has too many images, or one that is not base64.
        """
        if self._show:
            return self.all({name: observation[name] for name in self._show if name in observation})
        shown = self.all({name: value for name, value in observation.items() if name not in UNSHOWN})
        metadata = observation.get("metadata")
        if not shown.text and not shown.images and isinstance(metadata, Mapping):
            return self.all({name: value for name, value in metadata.items() if isinstance(value, str)})
        return shown

    def all(self, fields: Mapping[str, Any]) -> Shown:
        """Fields that are not empty, each after its name. Of a single text, the name is left out. Raises as `shown`."""
        present = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
        shown = Shown()
        for name, value in present.items():
            text = self._text(value, shown)
            alone = len(present) == 1 and isinstance(value, str)
            shown.texts.append(whole(text if alone or not text else f"{name}: {text}"))
        if sum(map(len, shown.texts)) > LONGEST_TEXT:
            raise EnvironmentFailure(
                f"the observation has more than {LONGEST_TEXT:,} characters: choose fields with show"
            )
        return shown

    def result(self, value: Any) -> Shown:
        """The result of a tool: its text, or the parts of its content."""
        content = value.get("content") if isinstance(value, Mapping) else None
        if not isinstance(content, list):
            return self.all({"result": value if isinstance(value, str) else _json(value)})
        shown = Shown()
        for part in content[: 2 * MOST_IMAGES]:
            kind, data = (part.get("type"), part.get("data")) if isinstance(part, Mapping) else (None, None)
            if kind == "text":
                shown.texts.append(whole(str(part.get("text"))))
            elif kind == "image" and isinstance(data, str):
                shown.texts.append(self._picture(data, shown))
        return shown if shown.texts or shown.images else self.all({"result": _json(value)})

    def _text(self, value: Any, shown: Shown) -> str:
        if isinstance(value, str):
            return self._picture(value, shown) if _is_picture(value) else value.strip("\n")
        if isinstance(value, list) and all(isinstance(item, str) and _is_picture(item) for item in value):
            return " ".join(filter(None, (self._picture(item, shown) for item in value)))
        return _json(value)

    def _picture(self, text: str, shown: Shown) -> str:
        """Add an image; returns what stands in the text in its place."""
        if not self._pictures:
            return "[image]"
        if len(shown.images) >= MOST_IMAGES:
            raise EnvironmentFailure(f"the observation has more than {MOST_IMAGES} images")
        try:
            data = base64.b64decode(text.partition(",")[2] if text.startswith("data:") else text, validate=True)
        except ValueError as error:
            raise EnvironmentFailure(f"an image of the observation cannot be read: {error}") from None
        shown.images.append(data)
        return ""


def message_of(shown: Shown, role: Role = "user", **named: Any) -> Message:
    """A message with the texts and the images."""
    if not shown.images:
        return Message(role=role, content=shown.text, **named)
    text: tuple[Part, ...] = (TextPart(text=shown.text),) if shown.text else ()
    return Message(role=role, content=(*text, *map(ImagePart.of, shown.images)), **named)


def observation_of(*pairs: tuple[Message, Shown]) -> Observation:
    """Messages with the images that they refer to."""
    images = dict.fromkeys(image for _, shown in pairs for image in shown.images)
    return Observation(messages=tuple(message for message, _ in pairs), images=tuple(images))


def _is_picture(text: str) -> bool:
    return len(text) >= SHORTEST_IMAGE and text.startswith(STARTS)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


__all__ = ["Shown", "Viewer", "message_of", "observation_of"]
