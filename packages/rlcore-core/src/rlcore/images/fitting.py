"""The preprocessing of images by a model of the Qwen-VL families: sizes, visual tokens, and fitted pixels."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlcore.errors import DataError, UserError
from rlcore.images.encoding import decode_image, image_size, open_image, orientation
from rlcore.json_files import read_json

FAMILIES = {"qwen2_vl": "Qwen2-VL", "qwen2_5_vl": "Qwen2.5-VL", "qwen3_vl": "Qwen3-VL"}
"""Name of each supported family by the ``model_type`` of its configuration."""
SETTINGS = "preprocessor_config.json"
TYPES = ("Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast")
"""The image processors that are supported: those of Qwen2-VL, Qwen2.5-VL and Qwen3-VL."""
EXTREME = 200
"""An image whose sides differ by more than this factor is rejected, as by the processors of the models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageProcessor:
    """How a model sees images: in square patches, several of which become one visual token.

    Equal to the image processor of the model folder in ``transformers``, but sizes and token counts are computed from
    the header of an image, before it is decoded.
    """

    patch_size: int = 14
    """Side of a patch in pixels."""
    merge_size: int = 2
    """Side in patches of the square that becomes one token."""
    temporal_patch_size: int = 2
    """Number of frames in a patch; an image is repeated."""
    min_pixels: int = 56 * 56
    """A smaller image is enlarged."""
    max_pixels: int = 28 * 28 * 1280
    """A larger image is reduced."""
    mean: tuple[float, float, float] = (0.48145466, 0.4578275, 0.40821073)
    """Subtracted from red, green and blue between 0 and 1."""
    std: tuple[float, float, float] = (0.26862954, 0.26130258, 0.27577711)
    """Divides the difference."""

    @classmethod
    def of_folder(
        cls, folder: Path, *, min_pixels: int | None = None, max_pixels: int | None = None
    ) -> ImageProcessor | None:
        """Read the image processor of a model folder; None if it has none.

        Args:
            folder: a Hugging Face folder
            min_pixels: replaces the folder's value
            max_pixels: replaces the folder's value

        Raises:
            UserError: it is damaged or of an unsupported type.
        """
        path = folder / SETTINGS
        if not path.is_file():
            return None
        try:
            settings = read_json(path)
            found = cls._of_settings(settings)
        except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
            fix = "save or download it again"
            raise UserError("the image processor cannot be read", found=str(error), where=str(path), fix=fix) from None
        kind = settings.get("image_processor_type", TYPES[0])
        if kind not in TYPES:
            raise UserError(
                "images need the processor of Qwen2-VL, Qwen2.5-VL or Qwen3-VL",
                found=str(kind)[:80],
                where=str(path),
                fix="choose a model of these families, or an environment without images",
            )
        found = replace(
            found,
            min_pixels=found.min_pixels if min_pixels is None else min_pixels,
            max_pixels=found.max_pixels if max_pixels is None else max_pixels,
        )
        if not found.token_side**2 <= found.max_pixels or found.min_pixels > found.max_pixels:
            raise UserError(
                f"an image has at least {found.token_side**2} pixels, one token, and min_pixels <= max_pixels",
                found=f"min_pixels={found.min_pixels}, max_pixels={found.max_pixels}",
                where="model.images" if (min_pixels or max_pixels) else str(path),
                fix="correct these limits",
            )
        return found

    @classmethod
    def _of_settings(cls, settings: dict[str, Any]) -> ImageProcessor:
        size = settings.get("size") or {}
        least = settings.get("min_pixels") or size.get("min_pixels") or size.get("shortest_edge")
        most = settings.get("max_pixels") or size.get("max_pixels") or size.get("longest_edge")
        default = cls()
        mean = tuple(float(value) for value in settings.get("image_mean") or default.mean)
        std = tuple(float(value) for value in settings.get("image_std") or default.std)
        if len(mean) != 3 or len(std) != 3 or not all(std):
            raise ValueError("image_mean and image_std must have three numbers")
        sizes = [int(settings.get(name, getattr(default, name))) for name in _SIZES]
        if not all(0 < size <= 256 for size in sizes):
            raise ValueError(f"{', '.join(_SIZES)} must be between 1 and 256")
        patch_size, merge_size, temporal_patch_size = sizes
        return cls(
            patch_size=patch_size,
            merge_size=merge_size,
            temporal_patch_size=temporal_patch_size,
            min_pixels=int(least or default.min_pixels),
            max_pixels=int(most or default.max_pixels),
            mean=mean,
            std=std,
        )

    @property
    def token_side(self) -> int:
        """Side in pixels of the square that becomes one token."""
        return self.patch_size * self.merge_size

    def fitted_size(self, width: int, height: int) -> tuple[int, int]:
        """Return the width and height in pixels at which the model sees an image.

        Both are multiples of `token_side`, their product is within the pixel limits, and the aspect ratio is kept as
        closely as possible.

        Raises:
            DataError: one side is more than 200 times the other.
        """
        if max(width, height) > EXTREME * min(width, height):
            raise DataError(
                f"the longer side of an image has at most {EXTREME} times the length of the shorter one",
                found=f"{width} x {height} pixels",
                fix="crop the image",
            )
        side = self.token_side
        wide, high = round(width / side) * side, round(height / side) * side
        if wide * high > self.max_pixels:
            scale = math.sqrt(width * height / self.max_pixels)
            wide, high = (max(side, math.floor(length / scale / side) * side) for length in (width, height))
        elif wide * high < self.min_pixels:
            scale = math.sqrt(self.min_pixels / (width * height))
            wide, high = (math.ceil(length * scale / side) * side for length in (width, height))
        return wide, high

    def tokens(self, width: int, height: int) -> tuple[int, int]:
        """Return the rows and columns of visual tokens of an image with this size, before or after fitting."""
        wide, high = self.fitted_size(width, height)
        return high // self.token_side, wide // self.token_side

    def grid(self, fitted: bytes) -> tuple[int, int]:
        """Return the rows and columns of visual tokens of an encoded image that was fitted.

        Unlike `tokens`, this is exact for narrow images, which can exceed ``max_pixels`` after fitting.

        Raises:
            DataError: it was not fitted by this processor.
        """
        width, height = image_size(fitted)
        if width % self.token_side or height % self.token_side:
            raise DataError(
                f"a fitted image has sides that are multiples of {self.token_side} pixels",
                found=f"{width} x {height} pixels",
                fix="fit it with the image processor of the model",
            )
        return height // self.token_side, width // self.token_side

    def fit(self, data: bytes) -> bytes:
        """Return an encoded image at the size and in the colours that the model sees.

        An RGB image that fits already is returned unchanged; any other becomes PNG. Resizing is bicubic.

        As in ``transformers``, a narrow image can exceed ``max_pixels``, and close limits can have no size between
        them. Only images outside of the limits change if they are fitted again: fit the original once, and use `grid`.

        Raises:
            DataError: it cannot be decoded, or its size or its sides are out of range.
        """
        header = open_image(data)
        size = image_size(data)
        wanted = self.fitted_size(*size)
        image = decode_image(data)
        if header.mode == "RGB" and (header.width, header.height) == wanted and orientation(header, data) == 1:
            return data
        from PIL.Image import Resampling

        if image.size != wanted:
            image = image.resize(wanted, Resampling.BICUBIC)
        written = io.BytesIO()
        image.save(written, format="PNG", compress_level=1)
        return written.getvalue()


_SIZES = ("patch_size", "merge_size", "temporal_patch_size")
