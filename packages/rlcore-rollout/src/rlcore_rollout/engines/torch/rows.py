"""Probes whether this machine's matrix products compute a row identically for any number of rows.

Observed with oneMKL on x86: results for 1, 2, 3, 6 and 7 rows differ from those for 64 rows, and every multiple of 8
agrees. Sums over at most 128 keys do not depend on how many masked keys follow. The scheduler therefore pads rows to
multiples of 8, queries that attend to a shared prompt are padded to such a multiple, and attention sums in blocks of
128 keys. The probe checks whether that is sufficient on this machine.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rlcore_rollout.engines.torch.attention import mix, scores
from rlcore_rollout.engines.torch.decoder import QUERY_PAD
from rlcore_rollout.engines.torch.prompts import LANES
from rlcore_rollout.engines.torch.weights import Weights


@torch.inference_mode()
def rows_are_independent(weights: Weights, slots: int) -> bool:
    """Return whether rows of the model's projections and of attention are bitwise equal in different batches."""
    layer = weights.layers[0]
    projections = (*layer.query_key_value, layer.attention_output, *layer.gate_up, layer.down)
    return (
        all(_agree(projection, projection.inputs, slots, weights) for projection in projections)
        and _agree(weights.head, weights.shape.width, slots, weights)
        and _masked_keys_do_not_matter(weights)
        and _siblings_do_not_matter(weights)
    )


def _keys(weights: Weights) -> Tensor:
    """Return arbitrary data [1, 320, E] that serves as queries and keys."""
    steps = torch.arange(320 * weights.shape.head_width, device=weights.device, dtype=torch.float32)
    return torch.sin(steps).view(1, 320, -1).to(weights.dtype)


def _masked_keys_do_not_matter(weights: Weights) -> bool:
    group, keys = weights.shape.heads // weights.shape.key_heads, _keys(weights)
    mask = torch.where(torch.arange(320, device=weights.device) > 140, float("-inf"), 0.0).to(weights.dtype)[None, None]
    for rows in (group, 16 * group):
        query = keys.repeat(1, rows, 1)[:, 3 : 3 + rows] * weights.shape.head_width**-0.5
        turned = keys.transpose(1, 2).contiguous()
        own = scores(query, turned[:, :, :32], mask[:, :, :0])
        found = []
        for seen in (160, 192, 320):
            of_prompt = scores(query, turned[:, :, :seen], mask[:, :, :seen])
            shares = torch.cat((of_prompt, own), dim=-1).softmax(dim=-1)
            found.append((mix(shares[:, :, :seen], keys[:, :seen]), shares[:, :, seen:]))
        if not all(torch.equal(x, y) for other in found[1:] for x, y in zip(found[0], other, strict=True)):
            return False
    return True


def _siblings_do_not_matter(weights: Weights) -> bool:
    group, keys = weights.shape.heads // weights.shape.key_heads, _keys(weights).repeat(2, 1, 1)
    most = -(-LANES * group // QUERY_PAD) * QUERY_PAD
    query = keys.repeat(1, most, 1)[:, 3 : 3 + most] * weights.shape.head_width**-0.5
    nothing = keys.new_zeros(1, 1, 0)
    turned = keys.transpose(1, 2).contiguous()
    whole = scores(query, turned, nothing)
    shares = whole.softmax(dim=-1)
    mixed = mix(shares, keys)
    for size in range(QUERY_PAD, most + 1, QUERY_PAD):
        for chosen in (slice(0, size), slice(most - size, most)):
            part = scores(query[:, chosen].contiguous(), turned, nothing)
            if not torch.equal(part, whole[:, chosen]) or not torch.equal(part.softmax(dim=-1), shares[:, chosen]):
                return False
            if not torch.equal(mix(shares[:, chosen].contiguous(), keys), mixed[:, chosen]):
                return False
    return True


def _agree(projection: Callable[[Tensor], Tensor], inputs: int, slots: int, weights: Weights) -> bool:
    count = max(32, -(-slots // 8) * 8)
    steps = torch.arange(count * inputs, device=weights.device, dtype=torch.float32)
    x = torch.sin(steps).view(count, -1).to(weights.dtype)
    whole = projection(x)
    parts = [projection(x[first : first + size]) for first, size in ((0, 8), (8, 16), (1, 24))]
    return all(
        torch.equal(part, whole[first : first + size])
        for part, (first, size) in zip(parts, ((0, 8), (8, 16), (1, 24)), strict=True)
    )
