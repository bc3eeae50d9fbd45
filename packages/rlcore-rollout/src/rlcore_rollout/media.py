"""The check that the images of a sequence and its tokens belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlcore.images import ImageProcessor
from rlcore.types import MediaSpan, TokenIds


def check_media(
    ids: TokenIds,
    media: Sequence[MediaSpan],
    images: Mapping[str, bytes],
    *,
    placeholder: int,
    processor: ImageProcessor,
) -> None:
    """Check the tokens that a chat format returned, before they are appended to a sequence.

    Args:
        ids: the tokens of the observation
        media: the images among them; offsets count from the first token
        images: the fitted images by content hash
        placeholder: the token of which an image has one for each visual token
        processor: the processor that fitted the images

    Raises:
        ValueError: a span does not belong to its tokens or its image, or a placeholder belongs to no image.
    """
    end = covered = 0
    for span in media:
        where = f"the image {span.sha256[:12]}… at the tokens {span.offset} to {span.offset + span.length}"
        if not end <= span.offset <= span.offset + span.length <= len(ids):
            raise ValueError(f"{where}, after the end of the previous image, {end}, in {len(ids)} tokens")
        if span.sha256 not in images:
            raise ValueError(f"{where} is not in the messages")
        grid = processor.grid(images[span.sha256])
        if grid != (span.rows, span.columns) or span.rows * span.columns != span.length:
            stated = f"{span.rows} rows and {span.columns} columns"
            raise ValueError(f"{where} has {stated}, but its size gives {grid[0]} and {grid[1]}")
        end = span.offset + span.length
        if ids[span.offset : end].tolist().count(placeholder) != span.length:
            raise ValueError(f"{where} does not consist of the placeholder {placeholder}")
        covered += span.length
    total = ids.tolist().count(placeholder)
    if total != covered:
        raise ValueError(f"{total} placeholders in the tokens, but {covered} in the images")
