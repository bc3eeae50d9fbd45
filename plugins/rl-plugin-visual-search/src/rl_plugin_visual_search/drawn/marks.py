"""Marks of one-pixel bars, which vanish without a trace when a picture is reduced.

The bars of a mark are alternately lighter and darker than the ground by the same amount, and fade in and out at both
ends of each row. A bicubic reduction by a factor of four averages the bars, so each row becomes exactly the ground.
How the rows differ, which is what distinguishes the marks, does not change that: pillow reduces rows before columns.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

GROUND = 127
"""Grey value around a mark, and its mean. Image processors with mean and deviation 0.5 normalise it to zero."""
CONTRAST = 100
"""Difference of a bar from the ground."""
MARK = 32
"""Width and height of a mark in pixels."""
CLEAR = 16
"""Pixels around a mark that must have the value of the ground: those that a reduction averages with it."""
FADE = (1 / 64, 7 / 64, 22 / 64, 42 / 64, 57 / 64, 63 / 64)
"""Contrast of the outermost bars: sums of binomial coefficients. An abrupt end would leave a trace."""
ROWS = {
    "bars": "+",
    "checks": "+-",
    "bricks": "++--",
    "planks": "++++----",
}
"""The marks. Each sign stands for a row, where ``-`` exchanges light and dark bars; the signs repeat downwards."""


@cache
def mark_image(name: str) -> Image.Image:
    """Return a mark as a grey image of `MARK` x `MARK` pixels. Callers must not change it."""
    from PIL import Image

    signs, rows = ROWS[name], {"+": _row(1), "-": _row(-1)}
    return Image.frombytes("L", (MARK, MARK), b"".join(rows[signs[y % len(signs)]] for y in range(MARK)))


def _row(sign: int) -> bytes:
    faded = [*FADE, *[1.0] * (MARK - 2 * len(FADE)), *reversed(FADE)]
    return bytes(GROUND + sign * (-1) ** x * round(CONTRAST * part) for x, part in enumerate(faded))


__all__ = ["CLEAR", "GROUND", "MARK", "ROWS", "mark_image"]
