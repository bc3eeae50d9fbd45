"""Multimodal rotary positions (M-RoPE) of a sequence with images."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from rlcore.types import MediaSpan

Positions = tuple["array[int]", "array[int]", "array[int]"]


def rotary_positions(length: int, media: Sequence[MediaSpan]) -> Positions:
    """Return the temporal, vertical and horizontal position of each token, three arrays [T].

    Text tokens have three equal positions. The tokens of an image share the temporal position after the text before
    them, and their vertical and horizontal positions count rows and columns from there. The text after an image
    continues after its largest position (Qwen2-VL, arXiv:2409.12191, section 2.1).

    Args:
        length: number of tokens T
        media: the images among them, in order; an image without ``rows`` counts as text
    """
    temporal, vertical, horizontal = array("q"), array("q"), array("q")
    done = position = 0
    for span in media:
        if span.offset >= length or not span.rows:
            continue
        text = range(position, position + span.offset - done)
        for axis in (temporal, vertical, horizontal):
            axis.extend(text)
        position += len(text)
        rows, columns = span.rows, span.columns
        temporal.extend([position] * (rows * columns))
        vertical.extend(position + row for row in range(rows) for _ in range(columns))
        horizontal.extend([position + column for column in range(columns)] * rows)
        position += max(rows, columns)
        done = span.offset + span.length
    rest = range(position, position + length - done)
    for axis in (temporal, vertical, horizontal):
        axis.extend(rest)
        del axis[length:]
    return temporal, vertical, horizontal
