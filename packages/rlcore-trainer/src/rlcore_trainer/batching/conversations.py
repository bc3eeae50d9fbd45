"""Conversations with text and images as training sequences.

Axes: ``T`` the tokens of a conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rlcore.contracts import RendersImages
from rlcore.errors import DataError, UserError
from rlcore.models.vision_language import CHOOSE
from rlcore.types import Demonstration, ImagePart, LossMask, Message, TokenIds, media_hash

from rlcore_trainer.batching.packing import TrainingSequence

if TYPE_CHECKING:
    from rlcore.contracts import ChatFormat


class ConversationEncoder:
    """Encodes conversations with the chat format of a run.

    Images are fitted here, each distinct one once. Sequences with equal images share their bytes.
    """

    def __init__(self, chat_format: ChatFormat) -> None:
        self._format = chat_format
        self._fitted: dict[str, tuple[str, bytes]] = {}
        """Content hash and bytes of fitted images, by the hash of the original."""

    def fitted(self, demonstration: Demonstration) -> tuple[tuple[Message, ...], Mapping[str, bytes]]:
        """Return the messages with references to fitted images, and these images by content hash.

        Raises:
            DataError: an image cannot be decoded, its size or its sides are out of range, or its bytes are missing.
            UserError: the chat format or the model sees no images.
        """
        wanted = [name for message in demonstration.messages for name in message.images]
        if not wanted:
            return demonstration.messages, {}
        if not isinstance(self._format, RendersImages) or self._format.image_processor is None:
            raise UserError(
                "conversations with images need a vision-language model and a chat format that places images",
                found=f"{type(self._format).__name__} without images",
                where="model.path",
                fix=CHOOSE,
            )
        given = {media_hash(data): data for data in demonstration.images}
        for name in wanted:
            if name in self._fitted:
                continue
            if name not in given:
                raise DataError("a conversation refers to an image without bytes", found=name[:12])
            data = self._format.image_processor.fit(given[name])
            self._fitted[name] = (media_hash(data), data)
        images = dict(self._fitted[name] for name in wanted)
        return tuple(self._with_fitted(message) for message in demonstration.messages), images

    def sequence(self, demonstration: Demonstration, name: str) -> TrainingSequence:
        """Return a conversation as a sequence whose trained tokens are those that a rollout would sample.

        Raises:
            DataError: as `fitted`, or no token is trained, because the conversation ``name`` has no assistant message.
            UserError: as `fitted`.
        """
        messages, images = self.fitted(demonstration)
        if images:
            assert isinstance(self._format, RendersImages)
            ids, mask, media = self._format.conversation_with_images(messages, demonstration.tools, images)
        else:
            (ids, mask), media = self._format.conversation(messages, demonstration.tools), ()
        if not any(mask):
            roles = ", ".join(message.role for message in messages) or "no messages"
            raise DataError(
                f"{name} needs an assistant message to train on",
                found=f"{roles}, beginning {messages[0].text[:60]!r}" if messages else roles,
                where="the training data",
                fix="end it with the answer of the assistant, or remove it",
            )
        return TrainingSequence(
            token_ids=TokenIds(ids),
            loss_mask=LossMask(mask),
            media=tuple(media),
            images=images,
            shares_any_prefix=bool(images),
        )

    def _with_fitted(self, message: Message) -> Message:
        if isinstance(message.content, str):
            return message
        parts = (
            ImagePart(sha256=self._fitted[part.sha256][0]) if isinstance(part, ImagePart) else part
            for part in message.content
        )
        return replace(message, content=tuple(parts))


def cut(sequence: TrainingSequence, limit: int) -> TrainingSequence:
    """Return the first ``limit`` tokens of a sequence, or fewer if an image would be cut in two."""
    for span in sequence.media:
        if span.offset < limit < span.offset + span.length:
            limit = span.offset
    kept = tuple(span for span in sequence.media if span.offset + span.length <= limit)
    return replace(
        sequence,
        token_ids=TokenIds(sequence.token_ids[:limit]),
        loss_mask=LossMask(sequence.loss_mask[:limit]),
        media=kept,
        images={span.sha256: sequence.images[span.sha256] for span in kept},
    )
