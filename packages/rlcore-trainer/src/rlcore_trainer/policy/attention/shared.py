"""Exact forward and backward attention of a packed row whose families share a prompt.

Axes: ``N`` the tokens of the row, ``H`` heads (keys and values may have fewer), ``D`` the size of a head, ``R`` the
response tokens of all families, ``K`` their prompt tokens; ``B`` the sequences of a block, ``L`` the length of each.

A response attends to its prompt and to itself. The two parts are computed separately, each with its own softmax, and
merged by their log-sum-exps, as in ring attention (Liu et al. 2023): with ``l`` the log-sum-exp over all keys, a part's
output has the weight ``exp(l_part - l)``. In the backward pass, the only results of the softmax that a flash kernel
needs are ``l`` and the output. They determine every probability ``exp(s - l)`` and the row sum that the derivative of a
softmax subtracts. Given the merged output and the merged ``l`` instead of a part's own, the kernel therefore returns
that part's share of the exact gradient.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rlcore_trainer.batching.packed_layout import PackedLayout


class Part(NamedTuple):
    """Queries and the keys that they attend to, concatenated over the sequences."""

    shapes: tuple[tuple[int, int, int], ...]
    """For each block: number of sequences, queries of each, keys of each."""
    query_offsets: Tensor
    """Start of each sequence among the queries, followed by the end of the last sequence, int32."""
    key_offsets: Tensor
    """Start of each sequence among the keys, followed by the end of the last sequence, int32."""
    causal: bool


class Kernel(Protocol):
    """A flash kernel. Its tensors are [tokens, H, D], its log-sum-exps [tokens, H]."""

    padded: bool
    """Whether sequences are passed as the buckets of `PackedLayout.own`; otherwise they keep their order in the row."""

    def forward(self, inputs: tuple[Tensor, ...], part: Part, scale: float) -> tuple[Tensor, Tensor]:
        """Return output and log-sum-exp for query, key and value."""

    def backward(
        self, grad: Tensor, inputs: tuple[Tensor, ...], output: Tensor, logsumexp: Tensor, part: Part, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of query, key and value."""


def shared_attention(
    query_NHD: Tensor,
    key_NHD: Tensor,
    value_NHD: Tensor,
    layout: PackedLayout,
    scale: float,
    *,
    kernel: Kernel,
) -> Tensor:
    """Compute causal attention within every stretch, and attention of responses to their family's prompt; [N, H, D].

    Keys and values may have fewer heads than queries.
    """
    apply: Any = _SharedAttention.apply
    output: Tensor = apply(query_NHD, key_NHD, value_NHD, layout, scale, kernel)
    return output


class _SharedAttention(torch.autograd.Function):
    """Attention with both parts merged."""

    @staticmethod
    def forward(
        ctx: Any,
        query_NHD: Tensor,
        key_NHD: Tensor,
        value_NHD: Tensor,
        layout: PackedLayout,
        scale: float,
        kernel: Kernel,
    ) -> Tensor:
        inputs = query_NHD, key_NHD, value_NHD
        own = layout.own if kernel.padded else None
        placed = inputs if own is None else tuple(map(own.places, inputs))
        output_NHD, logsumexp_NH = kernel.forward(placed, _own(layout, kernel), scale)
        if own is not None:
            output_NHD, logsumexp_NH = own.positions(output_NHD), own.positions(logsumexp_NH)
        if layout.families:
            rows_R = layout.response_rows_R
            shared_RHD, shared_RH = kernel.forward(_of_families(inputs, layout), _shared(layout), scale)
            own_RH = logsumexp_NH[rows_R]
            merged_RH = torch.logaddexp(own_RH, shared_RH)
            merged_RHD = output_NHD[rows_R] * (own_RH - merged_RH).exp()[..., None]
            merged_RHD += shared_RHD * (shared_RH - merged_RH).exp()[..., None]
            output_NHD.index_copy_(0, rows_R, merged_RHD.to(output_NHD.dtype))
            logsumexp_NH.index_copy_(0, rows_R, merged_RH)
        # Save the placed tensors, to avoid moving them again. With families, the shared part needs the row order.
        ctx.save_for_backward(*(inputs if layout.families else placed), output_NHD, logsumexp_NH)
        ctx.layout, ctx.scale, ctx.kernel = layout, scale, kernel
        return output_NHD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NHD: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, output_NHD, logsumexp_NH = ctx.saved_tensors
        layout, scale, kernel = ctx.layout, ctx.scale, ctx.kernel
        own = layout.own if kernel.padded else None
        if own is None:
            gradients = kernel.backward(grad_NHD, tuple(inputs), output_NHD, logsumexp_NH, _own(layout, kernel), scale)
        else:
            saved = tuple(map(own.places, inputs)) if layout.families else tuple(inputs)
            results = own.places(output_NHD), own.places(logsumexp_NH)
            found = kernel.backward(own.placed_once(grad_NHD), saved, *results, _own(layout, kernel), scale)
            gradients = tuple(map(own.positions, found))
        if layout.families:
            rows_R, rows_K = layout.response_rows_R, layout.prompt_rows_K
            kept = grad_NHD[rows_R], output_NHD[rows_R], logsumexp_NH[rows_R]
            shares = kernel.backward(kept[0], _of_families(inputs, layout), *kept[1:], _shared(layout), scale)
            for gradient, rows, share in zip(gradients, (rows_R, rows_K, rows_K), shares, strict=True):
                gradient.index_copy_(0, rows, gradient[rows] + share)
        return *gradients, None, None, None


def _own(layout: PackedLayout, kernel: Kernel) -> Part:
    shapes = layout.own.shapes if kernel.padded else [(1, length) for length in layout.lengths]
    return Part(tuple((count, length, length) for count, length in shapes), layout.offsets, layout.offsets, True)


def _shared(layout: PackedLayout) -> Part:
    shapes = tuple((1, family.end - family.middle, family.middle - family.start) for family in layout.families)
    return Part(shapes, layout.response_offsets, layout.prompt_offsets, False)


def _of_families(inputs: Any, layout: PackedLayout) -> tuple[Tensor, ...]:
    query_NHD, key_NHD, value_NHD = inputs
    rows_K = layout.prompt_rows_K
    return query_NHD[layout.response_rows_R], key_NHD[rows_K], value_NHD[rows_K]


class VarlenKernel:
    """A kernel for GPUs and half precision that computes all sequences at once with PyTorch's flash attention."""

    padded = False

    def forward(self, inputs: tuple[Tensor, ...], part: Part, scale: float) -> tuple[Tensor, Tensor]:
        """See `Kernel`."""
        query, key, value = inputs
        output, logsumexp_HN, *_ = torch.ops.aten._flash_attention_forward(
            query, key, value, *_ranges(part), 0.0, part.causal, False, scale=scale
        )
        return output, logsumexp_HN.T

    def backward(
        self, grad: Tensor, inputs: tuple[Tensor, ...], output: Tensor, logsumexp: Tensor, part: Part, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Kernel`."""
        # The state of the random generator, which is read only with dropout, and an unused tensor.
        state = torch.zeros(2, dtype=torch.uint64, device=grad.device), grad.new_empty(0)
        grad_query, grad_key, grad_value = torch.ops.aten._flash_attention_backward(
            grad.contiguous(),
            *inputs,
            output,
            logsumexp.T.contiguous(),
            *_ranges(part),
            0.0,
            part.causal,
            *state,
            scale=scale,
        )
        return grad_query, grad_key, grad_value


def _ranges(part: Part) -> tuple[Tensor, Tensor, int, int]:
    longest = max(queries for _, queries, _ in part.shapes), max(keys for _, _, keys in part.shapes)
    return part.query_offsets, part.key_offsets, *longest
