"""Attention of blocks of equal shape on a CPU: torch's flash kernel, or plain products in bfloat16.

torch's flash kernel multiplies bfloat16 with oneMKL, which is slow on an AMD processor: with 64 sequences of 70 tokens,
the backward pass takes 92 ms a layer of SmolLM2 on one core, and 16 ms with the products of oneDNN. On an Intel
processor with AMX it takes 193 and 63 ms, but the forward pass is faster in the flash kernel: 11 and 22 ms.

Axes: ``B`` the sequences of a block, ``H`` heads, ``L`` queries of a sequence, ``K`` its keys, ``D`` the size of a
head; ``G`` the pairs of a sequence and a head of its keys, ``R`` the queries of all heads that share this head.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from rlcore_models.products import bfloat16_products, has_matrix_units, multiplies_bfloat16
from torch import Tensor

from rlcore_trainer.policy.attention.shared import Part
from rlcore_trainer.policy.logits import SMALLEST_EXPONENT

SCORES = 1 << 20
"""Scores that are computed at once: 4 MiB in float32, which fits in the processor's cache. Longer sequences use the
flash kernel, which does not compute the scores of later tokens."""


class CpuKernel:
    """A `Kernel` for any floating type that computes blocks of equal shape one after another."""

    padded = True

    def forward(self, inputs: tuple[Tensor, ...], part: Part, scale: float) -> tuple[Tensor, Tensor]:
        """See `Kernel`."""
        outputs, logsumexps = [], []
        for query, key, value in _blocks(part, inputs[:1], inputs[1:]):
            attend = _forward if _is_multiplied(query, key) and not has_matrix_units() else _flash_forward
            output_BHLD, logsumexp_BHL = attend(query, key, value, part.causal, scale)
            outputs.append(output_BHLD.transpose(1, 2).flatten(0, 1))
            logsumexps.append(logsumexp_BHL.transpose(1, 2).flatten(0, 1))
        return _joined(outputs), _joined(logsumexps)

    def backward(
        self, grad: Tensor, inputs: tuple[Tensor, ...], output: Tensor, logsumexp: Tensor, part: Part, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Kernel`."""
        found: list[tuple[Tensor, ...]] = []
        of_queries = inputs[0], grad, output, logsumexp[..., None]
        for query, grad_BHLD, output_BHLD, logsumexp_BHL1, key, value in _blocks(part, of_queries, inputs[1:]):
            differentiate = _backward if _is_multiplied(query, key) else _flash_backward
            logsumexp_BHL = logsumexp_BHL1[..., 0]
            gradients = differentiate(grad_BHLD, query, key, value, output_BHLD, logsumexp_BHL, part.causal, scale)
            found.append(tuple(x_BHLD.transpose(1, 2).flatten(0, 1) for x_BHLD in gradients))
        grad_query, grad_key, grad_value = (_joined(list(parts)) for parts in zip(*found, strict=True))
        return grad_query, grad_key, grad_value


def _blocks(part: Part, of_queries: tuple[Tensor, ...], of_keys: tuple[Tensor, ...]) -> Iterator[list[Tensor]]:
    """Yield the tensors of each block as [B, H, L, D]."""
    query = key = 0
    for count, queries, keys in part.shapes:
        yield [
            x[start : start + count * length].view(count, length, *x.shape[1:]).transpose(1, 2)
            for xs, start, length in ((of_queries, query, queries), (of_keys, key, keys))
            for x in xs
        ]
        query, key = query + count * queries, key + count * keys


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _flash_forward(
    query_BHLD: Tensor, key_BHKD: Tensor, value_BHKD: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    output_BHLD, logsumexp_BHL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query_BHLD, key_BHKD, value_BHKD, 0.0, causal, scale=scale
    )
    return output_BHLD, logsumexp_BHL


def _flash_backward(
    grad_BHLD: Tensor,
    query_BHLD: Tensor,
    key_BHKD: Tensor,
    value_BHKD: Tensor,
    output_BHLD: Tensor,
    logsumexp_BHL: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_BHLD, query_BHLD, key_BHKD, value_BHKD, output_BHLD, logsumexp_BHL, 0.0, causal, scale=scale
    )
    return found


# Plain products. Queries, keys, values and gradients are exact in bfloat16. Probabilities and their gradients are
# rounded to bfloat16 for the products, as in the flash kernel; scores and sums are float32.


def _is_multiplied(query_BHLD: Tensor, key_BHKD: Tensor) -> bool:
    rows = query_BHLD.shape[1] // key_BHKD.shape[1] * query_BHLD.shape[2]
    return query_BHLD.dtype == torch.bfloat16 and multiplies_bfloat16() and rows * key_BHKD.shape[2] <= SCORES


def _forward(
    query_BHLD: Tensor, key_BHKD: Tensor, value_BHKD: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    heads = key_BHKD.shape[1]
    query_GRD, key_GKD, value_GKD = (_grouped(x, heads) for x in (query_BHLD, key_BHKD, value_BHKD))
    later_LK = _later(query_BHLD, causal)
    output_GRD, logsumexp_GR1 = torch.empty_like(query_GRD), torch.empty_like(query_GRD[..., :1])
    for chunk, (memory, *_) in _chunks(query_GRD, key_GKD):
        scores = _scores(query_GRD[chunk], key_GKD[chunk], later_LK, scale, memory)
        largest = scores.amax(-1, keepdim=True)
        weights = scores.sub_(largest).clamp_min_(SMALLEST_EXPONENT).exp_()
        total = weights.sum(-1, keepdim=True)
        torch.div(_product(weights, value_GKD[chunk]), total, out=output_GRD[chunk])
        torch.add(largest, total.log(), out=logsumexp_GR1[chunk])
    return output_GRD.view(query_BHLD.shape).to(query_BHLD.dtype), logsumexp_GR1.view(query_BHLD.shape[:-1])


def _backward(
    grad_BHLD: Tensor,
    query_BHLD: Tensor,
    key_BHKD: Tensor,
    value_BHKD: Tensor,
    output_BHLD: Tensor,
    logsumexp_BHL: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients. The derivative of a softmax is ``p (g - sum(p g))``, whose sum is that of grad · output."""
    heads = key_BHKD.shape[1]
    inputs = (grad_BHLD, query_BHLD, key_BHKD, value_BHKD, output_BHLD, logsumexp_BHL[..., None])
    grad_GRD, query_GRD, key_GKD, value_GKD, output_GRD, logsumexp_GR1 = (_grouped(x, heads) for x in inputs)
    later_LK = _later(query_BHLD, causal)
    found_query, found_key, found_value = map(torch.empty_like, (query_GRD, key_GKD, value_GKD))
    mean_GR1 = (grad_GRD * output_GRD).sum(-1, keepdim=True)
    for chunk, (first, second) in _chunks(query_GRD, key_GKD):
        query, key, grad = query_GRD[chunk], key_GKD[chunk], grad_GRD[chunk]
        scores = _scores(query, key, later_LK, scale, first)
        weights = scores.sub_(logsumexp_GR1[chunk]).clamp_min_(SMALLEST_EXPONENT).exp_()
        _product(weights.transpose(1, 2), grad, found_value[chunk])
        slopes = _product(grad, value_GKD[chunk].transpose(1, 2), second)
        slopes.sub_(mean_GR1[chunk]).mul_(weights).mul_(scale)
        _product(slopes, key, found_query[chunk])
        _product(slopes.transpose(1, 2), query, found_key[chunk])
    return (
        found_query.view(query_BHLD.shape).to(query_BHLD.dtype),
        found_key.view(key_BHKD.shape).to(key_BHKD.dtype),
        found_value.view(value_BHKD.shape).to(value_BHKD.dtype),
    )


def _grouped(x_BHLD: Tensor, heads: int) -> Tensor:
    """Return queries or keys as float32 [G, R, D]."""
    count, _, _, size = x_BHLD.shape
    return x_BHLD.reshape(count * heads, -1, size).float()


def _chunks(query_GRD: Tensor, key_GKD: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of the groups, and memory for two times their scores [2, G, R, K]."""
    groups, scores = len(query_GRD), query_GRD.shape[1] * key_GKD.shape[1]
    size = min(groups, max(1, SCORES // scores))
    memory = query_GRD.new_empty(2, size, query_GRD.shape[1], key_GKD.shape[1])
    for start in range(0, groups, size):
        yield slice(start, start + size), memory[:, : groups - start]


def _later(query_BHLD: Tensor, causal: bool) -> Tensor | None:
    """Return the least number for the keys after a query, and 0 for the others [L, K].

    Their weights become exp(`SMALLEST_EXPONENT`): torch computes exponentials of lower numbers half as fast.
    """
    length = query_BHLD.shape[2]
    return torch.full((length, length), torch.finfo(torch.float32).min).triu_(1) if causal else None


def _scores(query_GRD: Tensor, key_GKD: Tensor, later_LK: Tensor | None, scale: float, memory_GRK: Tensor) -> Tensor:
    scores_GRK = _product(query_GRD, key_GKD.transpose(1, 2), memory_GRK).mul_(scale)
    if later_LK is not None:
        scores_GRK.view(len(query_GRD), -1, *later_LK.shape).add_(later_LK)
    return scores_GRK


def _product(left: Tensor, right: Tensor, memory: Tensor | None = None) -> Tensor:
    with bfloat16_products():
        return torch.bmm(left, right) if memory is None else torch.bmm(left, right, out=memory)


__all__ = ["CpuKernel"]
