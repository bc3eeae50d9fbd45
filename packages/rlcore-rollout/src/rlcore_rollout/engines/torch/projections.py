"""Linear layers as the decoder computes them: a weight, a bias and an optional low-rank adapter.

Axes: ``N`` tokens, ``I`` inputs, ``O`` outputs, ``R`` the rank.

LoRA (Hu et al. 2021, arXiv:2106.09685, section 4.1): ``W' = W + s·B·A``; DoRA (Liu et al. 2024, arXiv:2402.09353, eq.
5): ``W' = m · V / ‖V‖`` with ``V = W + s·B·A`` and the norm of each output's row.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from rlcore_models.products import bfloat16_products, linear, pack
from torch import Tensor, nn

HEAD_ROWS = 2048
"""Rows of the output layer that are converted to float32 at a time on a CPU, so that they stay in its cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank:
    """The low-rank part of an adapter for a layer whose weight is left unchanged."""

    down_RI: Tensor
    up_OR: Tensor
    """Includes the scale."""
    magnitude_O: Tensor | None
    """DoRA's ``m / ‖V‖``, which multiplies every output before the bias is added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """One linear layer."""

    weight_OI: Tensor
    """The layer's own weight, which may be packed. A quantised weight has a different shape."""
    bias_O: Tensor | None = None
    low_rank: LowRank | None = None
    quantised: nn.Linear | None = None
    """The quantised module. It computes the layer, bias included, in place of the weight."""

    @property
    def inputs(self) -> int:
        """The input size I."""
        return self.weight_OI.shape[1] if self.quantised is None else self.quantised.in_features

    def packed(self) -> Projection:
        """Return the projection with a copy of its weight that is multiplied faster. It must not be quantised."""
        return replace(self, weight_OI=pack(self.weight_OI))

    def __call__(self, x_NI: Tensor) -> Tensor:
        """Compute the outputs [N, O]."""
        change = self.low_rank
        if change is None:
            if self.quantised is not None:
                return self.quantised(x_NI)  # type: ignore[no-any-return]
            return linear(x_NI, self.weight_OI, self.bias_O)
        bias_O = self.bias_O
        if self.quantised is None:
            output_NO = linear(x_NI, self.weight_OI)
        else:
            output_NO = self.quantised(x_NI)
            if change.magnitude_O is None:
                bias_O = None  # the quantised layer already added the bias
            elif bias_O is not None:
                output_NO -= bias_O
        output_NO += linear(linear(x_NI, change.down_RI), change.up_OR)
        if change.magnitude_O is not None:
            output_NO *= change.magnitude_O
        return output_NO if bias_O is None else output_NO.add_(bias_O)


@dataclass(frozen=True, slots=True)
class OutputLayer:
    """The output layer. Its logits are sums in float32 that are not rounded to half precision.

    bfloat16 has steps of 0.06 between 8 and 16, so rounded logits would differ from the trainer's by much more than the
    hidden states do.
    """

    projection: Projection

    def __call__(self, hidden_ND: Tensor) -> Tensor:
        """Compute the logits [N, V], float32."""
        whole, weight_VD = self.projection, self.projection.weight_OI
        plain = whole.low_rank is None and whole.quantised is None and whole.bias_O is None
        if not plain or weight_VD.dtype not in (torch.bfloat16, torch.float16):
            return whole(hidden_ND).float()
        if weight_VD.is_cuda:
            return torch.mm(hidden_ND, weight_VD.T, out_dtype=torch.float32)
        logits_NV = hidden_ND.new_empty((len(hidden_ND), len(weight_VD)), dtype=torch.float32)
        hidden_ND = hidden_ND.float()
        memory_VD = weight_VD.new_empty((min(HEAD_ROWS, len(weight_VD)), weight_VD.shape[1]), dtype=torch.float32)
        with bfloat16_products() if weight_VD.dtype == torch.bfloat16 else nullcontext():
            for rows in range(0, len(weight_VD), HEAD_ROWS):
                part_VD = weight_VD[rows : rows + HEAD_ROWS]
                float_VD = memory_VD[: len(part_VD)].copy_(part_VD)
                torch.mm(hidden_ND, float_VD.T, out=logits_NV[:, rows : rows + HEAD_ROWS])
        return logits_NV


def projection(module: Any, *, folded: bool, dtype: torch.dtype) -> Projection:
    """Return the projection of a linear layer, or of a layer that carries a peft adapter.

    Args:
        module: the layer
        folded: merge the adapter into a copy of the weight, so that a single product suffices; otherwise the weight
            shares the module's memory
        dtype: the type in which the low-rank products are computed
    """
    base = module.base_layer if hasattr(module, "lora_A") else module
    weight_OI, bias_O = base.weight.detach(), None if base.bias is None else base.bias.detach()
    quantised = None if weight_OI.is_floating_point() else base
    if base is module:
        return Projection(weight_OI=weight_OI, bias_O=bias_O, quantised=quantised)
    names = [name for name in module.active_adapters if name in module.lora_A] if not module.disable_adapters else []
    for name in names:  # at most one in rlcore
        down_RI, up_OR = module.lora_A[name].weight.detach(), module.lora_B[name].weight.detach()
        scaled_OR = up_OR.float() * module.scaling[name]
        changed_OI = None
        magnitude_O = None
        if name in module.lora_magnitude_vector:
            whole_OI = weight_OI if quantised is None else _dequantised(base)
            changed_OI = whole_OI.float() + scaled_OR @ down_RI.float()
            magnitude_O = module.lora_magnitude_vector[name].weight.detach().float() / changed_OI.norm(dim=1)
        if folded:
            if changed_OI is None:
                changed_OI = weight_OI.float() + scaled_OR @ down_RI.float()
            if magnitude_O is not None:
                changed_OI *= magnitude_O[:, None]
            weight_OI = changed_OI.to(weight_OI.dtype)
            continue
        low_rank = LowRank(
            down_RI=down_RI.to(dtype),
            up_OR=scaled_OR.to(dtype),
            magnitude_O=None if magnitude_O is None else magnitude_O.to(dtype),
        )
        return Projection(weight_OI=weight_OI, bias_O=bias_O, low_rank=low_rank, quantised=quantised)
    return Projection(weight_OI=weight_OI, bias_O=bias_O, quantised=quantised)


def _dequantised(base: nn.Module) -> Tensor:
    from peft.utils.integrations import dequantize_module_weight

    weight_OI: Tensor = dequantize_module_weight(base)
    return weight_OI.detach()


def concatenate(projections: Sequence[Projection]) -> Projection:
    """Return one projection whose outputs are those of all given projections, in order."""
    weights = [each.weight_OI for each in projections]
    biases = [each.bias_O for each in projections]
    if all(bias is None for bias in biases):
        return Projection(weight_OI=torch.cat(weights))
    filled = [w.new_zeros(len(w)) if bias is None else bias for w, bias in zip(weights, biases, strict=True)]
    return Projection(weight_OI=torch.cat(weights), bias_O=torch.cat(filled))


def pair_rows(given: Projection, head_width: int) -> Projection:
    """Reorder the outputs of each head so that the two parts of a rotated pair are adjacent."""
    weight_OI, bias_O = given.weight_OI, given.bias_O
    heads = weight_OI.shape[0] // head_width
    return Projection(
        weight_OI=interleave(weight_OI.view(heads, head_width, -1), 1).flatten(0, 1),
        bias_O=None if bias_O is None else interleave(bias_O.view(heads, head_width), 1).flatten(),
    )


def interleave(x: Tensor, axis: int) -> Tensor:
    """Reorder halves (a0 a1 … b0 b1 …) along an axis into pairs (a0 b0 a1 b1 …), the order of complex numbers."""
    first, second = x.chunk(2, dim=axis)
    return torch.stack((first, second), dim=axis + 1).flatten(axis, axis + 1)
