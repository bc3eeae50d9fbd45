"""Pictures as inputs of published policies. Axes: B batch, Y and X rows and columns, C colours."""

from __future__ import annotations

from torch import Tensor, nn


def letterboxed(image_BCYX: Tensor, size: int, *, corner: bool = False) -> Tensor:
    """Return pictures scaled to fit a square, with black bars, and with values from -1 to 1.

    Args:
        image_BCYX: pictures with values from 0 to 1
        size: the side of the square
        corner: whether the bars are on the left and at the top, instead of on both sides
    """
    height, width = image_BCYX.shape[2:]
    if (height, width) != (size, size):
        ratio = max(height, width) / size
        rows, columns = max(1, int(height / ratio)), max(1, int(width / ratio))
        image_BCYX = nn.functional.interpolate(image_BCYX, (rows, columns), mode="bilinear")
        top, left = size - rows, size - columns
        if not corner:
            image_BCYX, top, left = image_BCYX.clamp(0, 1), top // 2, left // 2
        image_BCYX = nn.functional.pad(image_BCYX, (left, size - columns - left, top, size - rows - top))
    return image_BCYX * 2 - 1
