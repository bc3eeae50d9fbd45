"""The rounding of a reference on the machine at hand, from which tests derive their tolerances.

Kernels of different processors add in different orders. A tolerance that was read off on one of them fails on another.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

MARGIN = 4
"""How many times as far apart two computations may be as the worst value of one of them is off."""

LARGEST = 1e-3
"""Rounding of small models in float32 is below this. A larger tolerance would accept everything."""


def tolerance(model: Any, compute: Callable[[Any], torch.Tensor]) -> float:
    """Return by how much an equal computation in another order may differ from ``compute(model)``.

    Args:
        model: a module in float32
        compute: runs the module, and returns values of any shape

    Returns:
        `MARGIN` times the largest difference to the same values of the module in float64, and at least the spacing of
        numbers of their size.
    """
    with torch.no_grad():
        values = compute(model)
        exact = compute(_doubled(model))
    off = float((values.double() - exact.double()).abs().max())
    assert off < LARGEST, f"in float64, the module computes something else: the difference is {off}"
    return MARGIN * max(off, torch.finfo(values.dtype).eps * float(values.abs().max()))


def _doubled(model: Any) -> Any:
    doubled = copy.deepcopy(model).double()
    if hasattr(doubled, "set_experts_implementation"):
        doubled.set_experts_implementation("eager")  # the grouped product of experts has no float64
    return doubled
