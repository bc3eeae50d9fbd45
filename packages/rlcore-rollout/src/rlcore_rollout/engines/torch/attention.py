"""Attention over a prompt that siblings share, and over each sibling's own tokens.

The queries of all siblings are multiplied with the prompt's keys in one matrix product, so a prompt is read once per
step instead of once per sibling (Hydragen, arXiv:2402.05099). One softmax spans the prompt and the own tokens.

Axes: N independent problems (a sequence or a prompt, times its key heads), M queries of each, S positions, E head
width.
"""

from __future__ import annotations

import torch
from torch import Tensor

KEY_BLOCK = 128
"""Attention sums values in blocks of this many positions, because oneMKL splits longer sums in a way that depends on
their length."""


def scores(query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """Compute ``query keys + mask`` [N, M, S] for [N, M, E] and [N, E, S]. The query is already scaled.

    The mask covers the last positions; all queries see the positions before them.
    """
    found = torch.bmm(query, keys)
    found[:, :, found.shape[2] - mask.shape[2] :] += mask
    return found


def mix(weights: Tensor, values: Tensor) -> Tensor:
    """Compute ``weights values`` [N, M, E] for [N, M, S] and [N, S, E], by blocks of positions."""
    mixed = torch.bmm(weights[:, :, :KEY_BLOCK], values[:, :KEY_BLOCK])
    for start in range(KEY_BLOCK, values.shape[1], KEY_BLOCK):
        mixed += torch.bmm(weights[:, :, start : start + KEY_BLOCK], values[:, start : start + KEY_BLOCK])
    return mixed
