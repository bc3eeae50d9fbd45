"""Linear layers in float32 on a CPU, whose three products are computed by oneDNN: see `rlcore_models.products`.

A step of training in float32 takes half the time on an AMD processor, and the same time on an Intel processor.

Axes: N rows, I inputs, O outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rlcore_models.products import linear, multiplies


def use_onednn(model: nn.Module, device: torch.device | None = None) -> None:
    """Let oneDNN multiply the matrices of all linear layers in float32 on a CPU. Names and parameters stay the same.

    Args:
        model: the model
        device: where the weights will be; None if they are already there
    """
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.dtype == torch.float32:
            weight = module.weight if device is None else torch.empty_like(module.weight, device=device)
            if multiplies(weight):
                module.__class__ = OneDnnLinear


class OneDnnLinear(nn.Linear):
    """A linear layer that is multiplied by oneDNN."""

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input weightᵀ + bias`` [..., O] for an input [..., I]."""
        if input.dtype != torch.float32 or self.weight.dtype != torch.float32:
            return super().forward(input)
        apply: Any = _Linear.apply
        output: Tensor = apply(input, self.weight, self.bias)
        return output


class _Linear(torch.autograd.Function):
    """The products of a linear layer and of its gradients."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(input, weight_OI)
        return linear(input, weight_OI, bias_O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        input, weight_OI = ctx.saved_tensors
        wants_input, wants_weight, wants_bias = ctx.needs_input_grad
        grad_NO = grad.flatten(0, -2)
        return (
            linear(grad, weight_OI.T) if wants_input else None,
            linear(grad_NO.T, input.flatten(0, -2).T) if wants_weight else None,
            grad_NO.sum(0) if wants_bias else None,
        )


__all__ = ["OneDnnLinear", "use_onednn"]
