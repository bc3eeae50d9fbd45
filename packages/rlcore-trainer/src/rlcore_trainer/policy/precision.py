"""Measure whether a CPU multiplies bfloat16 or float32 faster."""

from __future__ import annotations

import time

import torch
from rlcore_models.products import linear

ROWS, WIDTH, FEED_FORWARD = 1024, 512, 1536
"""Sizes of the measured product, those of a small model: 4 to 10 ms a product on two cores."""
REPEATS = 3
FASTER = 1.4
"""A step contains more than products, so a smaller gain is not worth the lower precision."""
LARGE = 20_000_000
"""Parameters of a model from which on products take most of the time of a step."""


def precision_hint(parameters: int, dtype: torch.dtype, device: torch.device) -> str:
    """Return a line that recommends the other type if it is faster here; empty otherwise.

    Takes 0.1 s, or half a second on a processor without instructions for bfloat16.
    """
    other = {torch.float32: torch.bfloat16, torch.bfloat16: torch.float32}.get(dtype)
    if device.type != "cpu" or other is None or parameters < LARGE:
        return ""
    gain = _seconds(dtype) / _seconds(other)
    if gain < FASTER:
        return ""
    fast, slow = (str(one).removeprefix("torch.") for one in (other, dtype))
    return f"note      this processor multiplies {fast} {gain:.1f} times as fast as {slow}: model.dtype={fast}"


def _seconds(dtype: torch.dtype) -> float:
    """Return the least time of a product."""
    inputs, weight = torch.ones(ROWS, WIDTH, dtype=dtype), torch.ones(FEED_FORWARD, WIDTH, dtype=dtype)
    found = []
    for _ in range(REPEATS + 1):
        started = time.perf_counter()
        linear(inputs, weight)
        found.append(time.perf_counter() - started)
    return min(found[1:])  # the first product also prepares its kernel


__all__ = ["precision_hint"]
