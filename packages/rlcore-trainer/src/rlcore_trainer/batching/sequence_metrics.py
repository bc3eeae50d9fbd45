"""Values of trained tokens by sequence, and metrics accumulated over micro-batches.

Axes: ``M`` the trained tokens of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Rows = dict[int, Tensor]
"""Values of the trained tokens of some sequences, by sequence index."""


class Captured(NamedTuple):
    """Numbers of trained tokens as they are sent between processes: one tensor for all sequences."""

    sequences: list[int]
    counts: list[int]
    """Number of tokens of each sequence."""
    values_KM: Tensor
    """K numbers of each token, float32 on the CPU."""

    @classmethod
    def of(cls, parts: Sequence[tuple[Tensor, Tensor]]) -> Captured:
        """Join micro-batches: the sequence of each token [M], and its numbers [K, M]."""
        if not parts:
            return cls([], [], torch.empty(0, 0))
        sequence_M = torch.cat([of for of, _ in parts]).cpu()
        values_KM = torch.cat([values for _, values in parts], dim=1).cpu()
        owners, counts = torch.unique_consecutive(sequence_M, return_counts=True)
        return cls(owners.tolist(), counts.tolist(), values_KM)

    def rows(self) -> Rows:
        """The numbers by sequence, [K, T]."""
        return dict(zip(self.sequences, torch.split(self.values_KM, self.counts, dim=1), strict=True))


def split(values_M: Tensor, sequence_M: Tensor) -> Rows:
    """Split the values of a micro-batch's trained tokens by sequence."""
    owners, counts = torch.unique_consecutive(sequence_M, return_counts=True)
    return dict(zip(owners.tolist(), torch.split(values_M, counts.tolist()), strict=True))


def rows_of(rows: Rows, sequence_M: Tensor) -> Tensor:
    """Concatenate the values of some sequences in the order of a micro-batch's trained tokens."""
    found = [rows[i] for i in torch.unique_consecutive(sequence_M).tolist()]
    return torch.cat(found) if found else torch.empty(0, device=sequence_M.device)


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
