"""Sizes, grids and visual tokens of images from their headers, against the image processor of transformers.

Each case is an encoded image of a random size with random limits of pixels, a patch size of 14 or 16 and a merge size
of 1 to 4. Transformers decodes, resizes and cuts the image, and states the grid of patches. rlcore reads the processor
that transformers saved and the header of the image. Images with extreme sides must be rejected by both.
"""

from __future__ import annotations

import io
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

from PIL import Image
from rlcore.errors import DataError
from rlcore.images import ImageProcessor, image_size
from transformers import Qwen2VLImageProcessor
from transformers.utils.logging import set_verbosity_error

VERSIONS = ("rlcore-core", "transformers", "torchvision", "pillow")
CASES, SMOKE_CASES = 1000, 20
MODES = (("RGB", "PNG"), ("RGB", "JPEG"), ("L", "PNG"), ("RGB", "WEBP"))
Found = tuple[int, int, int, int, int]
"""Width and height in pixels, rows and columns of patches, and visual tokens."""


def count(*, smoke: bool = False) -> tuple[int, int, str]:
    """Count the cases in which both sides agree, and print the time of each side."""
    set_verbosity_error()  # type: ignore[no-untyped-call]  # it warns about images of three rows or columns
    numbers, cases = random.Random(0), SMOKE_CASES if smoke else CASES
    seconds: Counter[str] = Counter()
    right = rejected = 0
    with tempfile.TemporaryDirectory() as name:
        for _ in range(cases):
            theirs = random_processor(numbers)
            theirs.save_pretrained(name)
            ours, data = ImageProcessor.of_folder(Path(name)), random_image(numbers)
            assert ours is not None
            started = time.perf_counter()
            found = from_header(ours, data)
            between = time.perf_counter()
            expected = from_pixels(theirs, data)
            seconds["rlcore"] += between - started
            seconds["transformers"] += time.perf_counter() - between
            right += found == expected
            rejected += expected is None
            if found != expected:
                print(f"  NOT EQUAL {image_size(data)} {ours}: {found}, expected {expected}")
    ratio = seconds["transformers"] / seconds["rlcore"]
    each = ", ".join(f"{side} {1e6 * spent / cases:,.0f} us" for side, spent in seconds.items())
    print(f"  {rejected} images rejected by transformers; per image: {each} ({ratio:,.0f} times)")
    return right, cases, "equal"


def random_processor(numbers: random.Random) -> Qwen2VLImageProcessor:
    """A processor with random limits, from one to 300 tokens."""
    patch, merge = numbers.choice((14, 16)), numbers.choice((1, 2, 2, 2, 4))
    least, most = sorted(round((patch * merge) ** 2 * 10 ** numbers.uniform(0, 2.5)) for _ in range(2))
    size = {"shortest_edge": least, "longest_edge": most}
    return Qwen2VLImageProcessor(patch_size=patch, merge_size=merge, size=size)


def random_image(numbers: random.Random) -> bytes:
    """An encoded image with sides of 1 to 1,500 pixels, every second one at least 300."""
    least = numbers.choice((1, 300))
    width, height = (round(least * (1500 / least) ** numbers.random()) for _ in range(2))
    mode, kind = numbers.choice(MODES)
    written = io.BytesIO()
    Image.new(mode, (width, height), "gray").save(written, format=kind)
    return written.getvalue()


def from_header(processor: ImageProcessor, data: bytes) -> Found | None:
    """The result of rlcore; None for an image that it rejects."""
    try:
        size = image_size(data)
        width, height = processor.fitted_size(*size)
        rows, columns = processor.tokens(*size)
    except DataError:
        return None
    side = processor.patch_size
    return width, height, height // side, width // side, rows * columns


def from_pixels(processor: Qwen2VLImageProcessor, data: bytes) -> Found | None:
    """The result of transformers; None for an image that it rejects."""
    try:
        prepared = processor(images=Image.open(io.BytesIO(data)), return_tensors="pt")
    except ValueError:
        return None
    _, rows, columns = prepared["image_grid_thw"][0].tolist()
    assert len(prepared["pixel_values"]) == rows * columns
    side, merge = processor.patch_size, processor.merge_size
    return columns * side, rows * side, rows, columns, rows * columns // merge**2
