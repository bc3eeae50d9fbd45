"""Probes for which numbers of rows this machine's matrix products compute a row identically.

Observed with oneMKL on x86: results for 1, 2, 3, 6 and 7 rows differ from those for 64 rows, and every multiple of 8
agrees. Observed with oneDNN in bfloat16 on a processor with AMX: 40 to 248 rows agree, fewer and more do not. Sums over
at most 128 keys do not depend on how many masked keys follow. The scheduler therefore pads rows to multiples of 8,
queries that attend to a shared prompt are padded to such a multiple, and attention sums in blocks of 128 keys. The
decoder pads smaller products and splits larger ones. The probe checks whether that is sufficient on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from rlcore_rollout.engines.torch.attention import mix, scores
from rlcore_rollout.engines.torch.config import BATCH_TOKENS
from rlcore_rollout.engines.torch.decoder import QUERY_PAD, Rows
from rlcore_rollout.engines.torch.prompts import LANES
from rlcore_rollout.engines.torch.weights import Weights

TRIED = (Rows(least=8, most=BATCH_TOKENS), Rows(least=48, most=192), Rows(least=64, most=64))
"""Numbers of rows that are tried, those with the least additional work first."""
SIZES = (8, 16, 24, 40, 64, 256)
"""Numbers of rows that are compared with the most. In a narrower range, every multiple of 8 is."""
SHIFTS = 5


@torch.inference_mode()
def independent_rows(weights: Weights, slots: int) -> Rows | None:
    """Return the numbers of rows for which rows of the model's projections are bitwise equal in different batches.

    None if there are none, or if the output layer or attention depend on other rows.
    """
    layer = weights.layers[0]
    projections = (*layer.query_key_value, layer.attention_output, *layer.gate_up, layer.down)
    if not (
        _agree(weights.head, weights.shape.width, (8, 16, 24), max(32, -(-slots // 8) * 8), weights)
        and _masked_keys_do_not_matter(weights)
        and _siblings_do_not_matter(weights)
    ):
        return None
    for rows in TRIED:
        sizes = SIZES if rows.most == BATCH_TOKENS else range(rows.least, rows.most + 1, 8)
        if all(_agree(one, one.inputs, sizes, rows.most, weights) for one in projections):
            return rows
    return None


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


def _agree(
    projection: Callable[[Tensor], Tensor], inputs: int, sizes: Iterable[int], most: int, weights: Weights
) -> bool:
    steps = torch.arange((most + SHIFTS) * inputs, device=weights.device, dtype=torch.float32)
    x = torch.sin(steps).view(most + SHIFTS, -1).to(weights.dtype)
    whole = projection(x[:most])
    for size in sizes:
        first = size % SHIFTS  # the place of a row in a product must not matter, either
        if not torch.equal(projection(x[first : first + size])[: most - first], whole[first : first + size]):
            return False
    return True
