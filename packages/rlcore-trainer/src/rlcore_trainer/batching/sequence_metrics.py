"""Values of trained tokens by sequence, and metrics accumulated over micro-batches.

Axes: ``M`` the trained tokens of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Rows = dict[int, Tensor]
"""Values of the trained tokens of some sequences, by sequence index."""


def split(values_M: Tensor, sequence_M: Tensor) -> Rows:
    """Split the values of a micro-batch's trained tokens by sequence."""
    owners, counts = torch.unique_consecutive(sequence_M, return_counts=True)
    return dict(zip(owners.tolist(), torch.split(values_M, counts.tolist()), strict=True))


def rows_of(rows: Rows, sequence_M: Tensor) -> Tensor:
    """Concatenate the values of some sequences in the order of a micro-batch's trained tokens."""
    return torch.cat([rows[i] for i in torch.unique_consecutive(sequence_M).tolist()])


def add_metrics(totals: dict[str, float], metrics: Mapping[str, Tensor]) -> None:
    """Add the metrics of a micro-batch to the totals: the maximum for names ending in ``/max``, otherwise the sum."""
    for name, value in metrics.items():
        number = float(value.detach())
        known = totals.get(name, 0.0)
        totals[name] = max(number, known) if name.endswith("/max") else known + number


def joined_metrics(everybody: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Join the totals of several processes, by the rule of `add_metrics`."""
    joined: dict[str, float] = {}
    for totals in everybody:
        for name, number in totals.items():
            known = joined.get(name)
            both = number if known is None else max(known, number) if name.endswith("/max") else known + number
            joined[name] = both
    return joined
