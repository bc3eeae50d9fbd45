"""Search tensors for NaN and infinity."""

from __future__ import annotations

from collections.abc import Mapping

from rlcore.errors import UserError
from rlcore_models.sharded import local
from torch import Tensor


def first_non_finite(values: object, name: str = "") -> str | None:
    """Return the dotted name of the first tensor that contains NaN or infinity; None if all are finite.

    Of a tensor that is divided between processes, the part of this process is searched.

    Raises:
        UserError: a tensor has floating-point numbers of 8 bits, which are no weights without their scales.
    """
    if isinstance(values, Tensor):
        if values.is_floating_point() and values.element_size() == 1:
            raise UserError(
                "tensors must have numbers of at least 16 bits",
                found=f"{name} {str(values.dtype).removeprefix('torch.')}",
                fix="save the weights as float32, bfloat16 or float16",
            )
        return name if values.is_floating_point() and not bool(local(values).isfinite().all()) else None
    if isinstance(values, Mapping):
        items = [(str(key), value) for key, value in values.items()]
    elif isinstance(values, list | tuple):
        items = [(str(place), value) for place, value in enumerate(values)]
    else:
        return None
    found = (first_non_finite(value, f"{name}.{key}" if name else key) for key, value in items)
    return next((place for place in found if place is not None), None)
