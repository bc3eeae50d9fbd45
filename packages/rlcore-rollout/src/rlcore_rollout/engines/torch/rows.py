"""Whether this machine's matrix products compute a row alike whatever the number of rows.

Seen with oneMKL on x86: 1, 2, 3, 6 and 7 rows differ from 64, every multiple of 8 agrees; sums over at most 128 keys do
not depend on how many masked keys follow. So the scheduler pads rows to multiples of 8 and attention sums by blocks of
128 keys, and this probe asks whether that is enough here.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from rlcore_rollout.engines.torch.decoder import attention
from rlcore_rollout.engines.torch.weights import Projection, Weights


@torch.inference_mode()
def rows_are_independent(weights: Weights, slots: int) -> bool:
    """Whether rows of the model's own projections, and attention over more masked keys, are equal bit for bit."""
    layer = weights.layers[0]
    projections = (*layer.query_key_value, layer.attention_output, *layer.gate_up, layer.down, weights.head)
    return all(_agree(projection, slots) for projection in projections) and _attention_agrees(weights)


def _attention_agrees(weights: Weights) -> bool:
    shape = weights.shape
    group, head_width, seen = shape.heads // shape.key_heads, shape.head_width, (160, 192, 320)
    steps = torch.arange(seen[-1] * head_width, device=weights.device, dtype=torch.float32)
    keys = torch.sin(steps).view(1, -1, head_width).to(weights.dtype)
    for rows in (group, 16 * group):
        query = keys.repeat(1, rows, 1)[:, 3 : 3 + rows]
        hidden = torch.arange(seen[-1], device=weights.device) > 140
        mask = torch.zeros_like(hidden, dtype=weights.dtype).masked_fill_(hidden, float("-inf"))[None, None]
        results = [attention(query, keys[:, :n], keys[:, :n], mask[:, :, :n], head_width**-0.5) for n in seen]
        if not all(torch.equal(result, results[0]) for result in results):
            return False
    return True


def _agree(projection: Projection, slots: int) -> bool:
    weight, _ = projection
    count = max(32, -(-slots // 8) * 8)
    steps = torch.arange(count * weight.shape[1], device=weight.device, dtype=torch.float32)
    x = torch.sin(steps).view(count, -1).to(weight.dtype)
    whole = functional.linear(x, *projection)
    parts = [functional.linear(x[first : first + size], *projection) for first, size in ((0, 8), (8, 16), (1, 24))]
    return all(
        torch.equal(part, whole[first : first + size])
        for part, (first, size) in zip(parts, ((0, 8), (8, 16), (1, 24)), strict=True)
    )
