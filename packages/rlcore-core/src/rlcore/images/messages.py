"""Messages with images, for the authors of environments and datasets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.images.encoding import check_image, encode_image
from rlcore.types import ImagePart, Message, Part, Role, TextPart

if TYPE_CHECKING:
    from PIL.Image import Image

DATA_URI = "data:"


def message_with_images(
    *parts: str | bytes | Path | Image, role: Role = "user", folder: Path | None = None
) -> tuple[Message, tuple[bytes, ...]]:
    """Return a message of texts and images in this order, and the bytes of its images.

    ::

        message, images = message_with_images("What is this?", Path("photo.jpg"))
        Observation(messages=(message,), images=images)

    Args:
        parts: a text, or an image: encoded bytes, a `Path`, a data URI (``data:image/png;base64,…``) or a PIL image
        role: of the message
        folder: the folder that paths are relative to and must not leave; None accepts any path

    Raises:
        DataError: an image is missing, damaged or of an unsupported format.
    """
    content: list[Part] = []
    images: dict[str, bytes] = {}
    for part in parts:
        if isinstance(part, str) and not part.startswith(DATA_URI):
            content.append(TextPart(text=part))
            continue
        data = encode_image(part, folder=folder)
        check_image(data)
        image = ImagePart.of(data)
        images[image.sha256] = data
        content.append(image)
    return Message(role=role, content=tuple(content)), tuple(images.values())
