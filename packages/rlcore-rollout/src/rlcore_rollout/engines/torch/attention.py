"""Attention in two parts: over a prompt shared by siblings, and over each sibling's own tokens.

The queries of all siblings are multiplied with the prompt's keys in one matrix product, so a prompt is read once per
step instead of once per sibling. The two parts are combined into one exact softmax (Hydragen, arXiv:2402.05099; the
combination rule is from Milakov and Gimelshein, arXiv:1805.02867).

Axes: N independent problems (a sequence or a prompt, times its key heads), M queries of each, S positions, E head
width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

KEY_BLOCK = 128
"""Attention sums values in blocks of this many positions, because oneMKL splits longer sums in a way that depends on
their length."""


class Part(NamedTuple):
    """Attention over a subset of the positions, with the values needed to combine it with the rest."""

    mixed: Tensor
    """Values weighted by the softmax over this part, [N, M, E]."""
    best: Tensor
    """Largest score, [N, M, 1]."""
    peak: Tensor
    """Softmax weight of the largest score within this part, [N, M, 1]: one over the sum of ``exp(score - best)``."""


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Part:
    """Compute ``softmax(query keys + mask) values`` for [N, M, E] against [N, E, S] and [N, S, E], by blocks of keys.

    The query is already scaled. The mask covers the last positions; all queries see the positions before them.
    """
    scores = torch.bmm(query, keys)
    scores[:, :, scores.shape[2] - mask.shape[2] :] += mask
    weights = torch.softmax(scores, dim=-1)
    mixed = torch.bmm(weights[:, :, :KEY_BLOCK], values[:, :KEY_BLOCK])
    for start in range(KEY_BLOCK, values.shape[1], KEY_BLOCK):
        mixed += torch.bmm(weights[:, :, start : start + KEY_BLOCK], values[:, start : start + KEY_BLOCK])
    return Part(mixed, scores.amax(-1, keepdim=True), weights.amax(-1, keepdim=True))


def join(one: Part, other: Part) -> Tensor:
    """Combine two parts into attention over the positions of both, in the shape of their ``mixed``.

    The only exponential is a softmax, which works row by row. An elementwise exponential may differ in the last bit
    between full vector lanes and the remaining elements.
    """
    heights = torch.cat((one.best, other.best), dim=-1).float().softmax(dim=-1)
    sums = heights / torch.cat((one.peak, other.peak), dim=-1)
    shares = (sums / sums.sum(dim=-1, keepdim=True)).to(one.mixed.dtype)
    return one.mixed * shares[..., :1] + other.mixed * shares[..., 1:]
