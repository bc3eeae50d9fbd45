"""Sparklines and area charts for the terminal, drawn with block characters. Plain text, so they work in pipes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

BLOCKS = " ▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], *, width: int = 24, low: float | None = None, high: float | None = None) -> str:
    """The last ``width`` values, one character each, scaled to ``low`` … ``high`` (by default, their range)."""
    shown = list(values)[-width:]
    if not shown:
        return ""
    low = min(shown) if low is None else low
    high = max(shown) if high is None else high
    span = high - low
    return "".join(BLOCKS[1 + round((_clamp((value - low) / span) if span else 0.0) * 7)] for value in shown)


def area_chart(
    steps: Sequence[int], values: Sequence[float], *, title: str, width: int = 56, height: int = 8
) -> list[str]:
    """The rows of a chart of ``values`` over ``steps`` with labelled axes. Values are not interpolated.

    If there are more values than columns, they are averaged; if there are fewer, each spans several columns.
    """
    columns = _columns(values, width)
    low, high = min(0.0, *columns), max(*columns, 0.0)
    if low >= 0.0 and (0.5 < high <= 1.0 or high == 0.0):
        high = 1.0
    span = (high - low) or 1.0
    eighths = [round(_clamp((value - low) / span) * height * 8) for value in columns]
    rows = [f"  {title}"]
    for row in reversed(range(height)):
        label = f"{high:6.2f}" if row == height - 1 else f"{low:6.2f}" if row == 0 else " " * 6
        rows.append(f"{label} │" + "".join(BLOCKS[max(0, min(8, count - 8 * row))] for count in eighths).rstrip())
    rows.append(" " * 7 + "└" + "─" * len(columns))
    first, last = str(steps[0]), f"step {steps[-1]}"
    rows.append(" " * 8 + first + last.rjust(max(len(last) + 1, len(columns) - len(first))))
    return rows


def _columns(values: Sequence[float], width: int) -> list[float]:
    count = len(values)
    if count > width:
        edges = [round(index * count / width) for index in range(width + 1)]
        return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    repeat = max(1, width // count)
    return [value for value in values for _ in range(repeat)]


def _clamp(value: float) -> float:
    return min(1.0, max(0.0, value))
