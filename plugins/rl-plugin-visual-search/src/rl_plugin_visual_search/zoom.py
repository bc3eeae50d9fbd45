"""The tool set ``zoom``: ``image_zoom_in_tool`` crops a region of a picture.

Coordinates have one space in a run, which the prompt and the schema state: pixels of the picture as it is in the file,
or thousandths of its width and height. The region is cut out of that picture, at its full resolution. How much the
model's image processor reduces the picture does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rlcore import Message, TextPart, ToolCall, ToolSchema
from rlcore.images import encode_image
from rlcore.images.encoding import decode_image

from rl_plugin_visual_search.prompts import SPACES, Coordinates, named_picture

if TYPE_CHECKING:
    from PIL.Image import Image

NAME = "image_zoom_in_tool"
SMALLEST_SIDE = 30
"""Both sides of a region must have more pixels."""
LARGEST_ASPECT = 100
"""Limit of the longer side divided by the shorter one."""
Box = tuple[int, int, int, int]


class BadRegion(ValueError):
    """Arguments that select no usable region. The model reads the message."""


def zoom_schema(coordinates: Coordinates) -> ToolSchema:
    """Return the description of the tool."""
    space = SPACES[coordinates]
    return ToolSchema(
        name=NAME,
        description="Zoom in on a region of a picture. Returns the region as a new picture.",
        parameters={
            "type": "object",
            "properties": {
                "bbox_2d": {
                    "type": "array",
                    "items": {"type": "number"},
                    "minItems": 4,
                    "maxItems": 4,
                    "description": f"The region as [x1, y1, x2, y2], its top left and bottom right corner, {space}.",
                },
                "label": {"type": "string", "description": "What the region shows."},
                "image": {"type": "integer", "description": "The number of the picture, from 0. The default is 0."},
            },
            "required": ["bbox_2d"],
        },
    )


class Zoom:
    """The pictures of an episode: those of the question, and the regions that the model has zoomed in to.

    Args:
        images: encoded pictures of the question
        coordinates: the space of regions
    """

    def __init__(self, images: Sequence[bytes], coordinates: Coordinates) -> None:
        self._encoded = list(images)
        self._coordinates: Coordinates = coordinates

    def __len__(self) -> int:
        return len(self._encoded)

    def crop(self, arguments: Mapping[str, Any]) -> tuple[bytes, str]:
        """Return the region that a call asks for, as PNG, and a description. It becomes the next picture.

        Raises:
            BadRegion: the arguments are invalid, or the region is too small or too narrow.
            DataError: the picture cannot be decoded.
        """
        number = self._number(arguments.get("image", 0))
        chosen = corners(arguments.get("bbox_2d"))
        image = _decoded(self._encoded[number])
        box = region(chosen, image.size, self._coordinates)
        cut = image.crop(box)
        self._encoded.append(encode_image(cut))
        width, height = cut.size
        return self._encoded[-1], f"the region {list(box)} of picture {number}, {width} x {height} pixels"

    def answer(self, call: ToolCall) -> tuple[Message, bytes]:
        """Return the message that answers a call, and the region. Raises as `crop`."""
        image, what = self.crop(call.arguments or {})
        number = len(self._encoded) - 1
        content = (TextPart(text=f"Picture {number} is {what}.\n"), *named_picture(number, image))
        return Message(role="tool", content=content, name=call.name, tool_call_id=call.id), image

    def _number(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < len(self._encoded):
            raise BadRegion(
                f"image must be the number of a picture, from 0 to {len(self._encoded) - 1}; found {value!r:.40}"
            )
        return value


def corners_of(box: Box, size: tuple[int, int], coordinates: Coordinates) -> list[int]:
    """Return the corners that select a box: the inverse of `region`.

    Args:
        box: left, top, right and bottom pixel
        size: width and height of the picture in pixels
        coordinates: the space of the corners, in which they must be whole numbers
    """
    if coordinates == "pixels":
        return list(box)
    return [round(1000 * pixel / size[place % 2]) for place, pixel in enumerate(box)]


def region(corners: Sequence[float], size: tuple[int, int], coordinates: Coordinates) -> Box:
    """Return the pixels of a region: left, top, right and bottom, within the picture.

    Args:
        corners: x1, y1, x2 and y2 in the space of ``coordinates``; parts outside of the picture are cut off
        size: width and height of the picture in pixels
        coordinates: the space of the corners

    Raises:
        BadRegion: it is empty, too small or too narrow.
    """
    width, height = size
    scales = (width / 1000, height / 1000) if coordinates == "thousandths" else (1.0, 1.0)
    x1, y1, x2, y2 = (corner * scales[place % 2] for place, corner in enumerate(corners))
    left, top = max(0, math.floor(x1)), max(0, math.floor(y1))
    right, bottom = min(width, math.ceil(x2)), min(height, math.ceil(y2))
    wide, high = right - left, bottom - top
    if min(wide, high) <= SMALLEST_SIDE:
        found = f"{max(0, wide)} x {max(0, high)} pixels inside of the picture, which has {width} x {height}"
        raise BadRegion(f"both sides of a region must have more than {SMALLEST_SIDE} pixels; found {found}")
    if max(wide, high) > LARGEST_ASPECT * min(wide, high):
        raise BadRegion(f"the sides of a region must not differ by more than a factor of {LARGEST_ASPECT}")
    return left, top, right, bottom


@lru_cache(maxsize=4)  # siblings zoom in to the same pictures; a decoded photo has many megabytes
def _decoded(data: bytes) -> Image:
    return decode_image(data)


def corners(value: object) -> tuple[float, ...]:
    """The numbers x1, y1, x2 and y2 of an argument. Raises `BadRegion` if they are none."""
    listed = list(value) if isinstance(value, (list, tuple)) else []
    numbers = [each for each in listed if isinstance(each, (int, float)) and not isinstance(each, bool)]
    if len(listed) != 4 or len(numbers) != 4 or not all(abs(each) < 1e9 for each in numbers):
        raise BadRegion(f"bbox_2d must be four numbers [x1, y1, x2, y2]; found {value!r:.80}")
    return tuple(float(each) for each in numbers)


__all__ = ["NAME", "BadRegion", "Zoom", "corners", "corners_of", "region", "zoom_schema"]
