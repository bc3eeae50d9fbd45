"""The pixels of a fitted image as the patches that a vision tower reads.

Axes: ``P`` the patches of an image, in squares of ``merge_size`` by ``merge_size``, which become one visual token.
"""

from __future__ import annotations

import torch
from rlcore.errors import DataError
from rlcore.images.encoding import decode_image
from rlcore.images.fitting import ImageProcessor
from torch import Tensor


def patches(data: bytes, processor: ImageProcessor) -> Tensor:
    """Return the normalised patches of an image, float32 [P, 3 * temporal_patch_size * patch_size ** 2].

    Equal to ``pixel_values`` of the image processor in ``transformers``.

    Args:
        data: an encoded image, already fitted
        processor: the processor that fitted it

    Raises:
        DataError: it cannot be decoded, or it is not fitted.
    """
    frame, _, _ = frame_patches(data, processor)
    repeated = frame.unsqueeze(2).expand(-1, -1, processor.temporal_patch_size, -1)
    return repeated.reshape(len(frame), -1)


def frame_patches(data: bytes, processor: ImageProcessor) -> tuple[Tensor, int, int]:
    """Return the patches of one frame, float32 [P, 3, patch_size ** 2], and the rows and columns of patches.

    An image has ``temporal_patch_size`` equal frames. Arguments and errors are those of `patches`.
    """
    image = decode_image(data)
    width, height = image.size
    if width % processor.token_side or height % processor.token_side:  # its limits were those of the run
        raise DataError(
            "the pixels of an image need its fitted size",
            found=f"{width} x {height} pixels",
            fix="call ImageProcessor.fit where the image enters",
        )
    side, merge = processor.patch_size, processor.merge_size
    rows, columns = height // side, width // side
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    squares = pixels.view(rows // merge, merge, side, columns // merge, merge, side, 3)
    ordered = squares.permute(0, 3, 1, 4, 6, 2, 5).to(torch.float32, memory_format=torch.contiguous_format)
    mean, std = (torch.tensor(values) * 255.0 for values in (processor.mean, processor.std))
    frame = ordered.reshape(rows * columns, 3, side * side)
    return frame.sub_(mean[:, None]).div_(std[:, None]), rows, columns
