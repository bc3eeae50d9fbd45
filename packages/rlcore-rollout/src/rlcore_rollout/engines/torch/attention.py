"""Attention in two parts: over a prompt that siblings share, and over what each of them has of its own.

The queries of all siblings meet the prompt's keys in one matrix product, so a prompt is read once a step and not once a
sibling. The parts are exact halves of one softmax (Hydragen, arXiv:2402.05099; the rule by which they are put together
is that of Milakov and Gimelshein, arXiv:1805.02867).

Axes: N independent problems (a sequence or a prompt, times its key heads), M queries of each, S positions, E head
width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

KEY_BLOCK = 128
"""Attention sums values in blocks of this many positions: how oneMKL splits longer sums depends on their length."""


class Part(NamedTuple):
    """Attention over some of the positions, and what it takes to join it with the rest."""

    mixed: Tensor
    """Values, weighted by the part's own softmax, [N, M, E]."""
    best: Tensor
    """Largest score, [N, M, 1]."""
    peak: Tensor
    """Its weight in the part's own softmax, [N, M, 1]: one over the sum of ``exp(score - best)``."""


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Part:
    """``softmax(query keys^T + mask) values`` for [N, M, E] against [N, S, E], by blocks of keys.

    The query comes scaled. The mask is that of the last positions, as many as it has; those before are seen by all.
    """
    scores = torch.bmm(query, keys.transpose(1, 2))
    scores[:, :, scores.shape[2] - mask.shape[2] :] += mask
    weights = torch.softmax(scores, dim=-1)
    mixed = torch.bmm(weights[:, :, :KEY_BLOCK], values[:, :KEY_BLOCK])
    for start in range(KEY_BLOCK, keys.shape[1], KEY_BLOCK):
        mixed += torch.bmm(weights[:, :, start : start + KEY_BLOCK], values[:, start : start + KEY_BLOCK])
    return Part(mixed, scores.amax(-1, keepdim=True), weights.amax(-1, keepdim=True))


def join(one: Part, other: Part) -> Tensor:
    """What attention over the positions of both parts gives, in the shape of their ``mixed``.

    The only exponential is a softmax, which works row by row: elementwise ones may differ in the last bit between the
    places of a vector and the few that are left over.
    """
    heights = torch.cat((one.best, other.best), dim=-1).float().softmax(dim=-1)
    sums = heights / torch.cat((one.peak, other.peak), dim=-1)
    shares = (sums / sums.sum(dim=-1, keepdim=True)).to(one.mixed.dtype)
    return one.mixed * shares[..., :1] + other.mixed * shares[..., 1:]
