"""Measure whether a CPU multiplies bfloat16 faster than float32."""

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
    """Return a line that recommends bfloat16 if it is faster here; empty otherwise. Takes 0.1 s."""
    if device.type != "cpu" or dtype != torch.float32 or parameters < LARGE:
        return ""
    gain = _seconds(torch.float32) / _seconds(torch.bfloat16)
    if gain < FASTER:
        return ""
    return f"note      this processor multiplies bfloat16 {gain:.1f} times as fast as float32: model.dtype=bfloat16"


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
