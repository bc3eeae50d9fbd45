"""A chat format that shows every image as three placeholder tokens, whatever is in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlcore.types import ImagePart, MediaSpan, Message, ToolSchema
from rlcore_rollout.chat.plain import PlainFormat
from rlcore_rollout.chat.renderer import Piece

PLACEHOLDER = "<|image_pad|>"
LENGTH = 3
"""Tokens of each image."""


class ImageFormat(PlainFormat):
    """The plain format with images (`rlcore.contracts.RendersImages`)."""

    def prompt_with_images(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], images: Mapping[str, bytes]
    ) -> tuple[Sequence[int], Sequence[MediaSpan]]:
        return self._with_spans(self.prompt(messages, tools), messages, images)

    def observation_with_images(
        self, messages: Sequence[Message], completion_ids: Sequence[int], images: Mapping[str, bytes]
    ) -> tuple[Sequence[int], Sequence[MediaSpan]]:
        return self._with_spans(self.observation(messages, completion_ids), messages, images)

    def _turn(self, role: str, message: Message) -> list[Piece]:
        pieces = [Piece(f"{self.start}{role}\n", "template")]
        for part in [] if isinstance(message.content, str) else message.content:
            image = isinstance(part, ImagePart)
            pieces.append(Piece(PLACEHOLDER * LENGTH, "template") if image else Piece(part.text, "outside"))
        if isinstance(message.content, str):
            pieces.append(Piece(message.content, "outside"))
        return [*pieces, Piece(f"{self.end}\n", "template")]

    def _with_spans(
        self, ids: list[int], messages: Sequence[Message], images: Mapping[str, bytes]
    ) -> tuple[list[int], list[MediaSpan]]:
        placeholder = self.tokenizer.added[PLACEHOLDER]
        places = [index for index, token in enumerate(ids) if token == placeholder][::LENGTH]
        names = [name for message in messages for name in message.images]
        assert set(names) == set(images)
        return ids, [MediaSpan(sha256=n, offset=p, length=LENGTH) for n, p in zip(names, places, strict=True)]
