"""Temporarily modified weights, to verify that weight transfers work.

Each tensor is reversed along its first axis and multiplied by powers of two. Both changes are exactly reversible. The
scales are chosen so that every tensor affects the logits and the rounding of half precision does not. If all layers of
a deep model contribute alike, each amplifies the rounding of those before it, up to more than a nat in bfloat16, and a
single stale tensor makes a smaller difference than that. In half precision a few layers at a time therefore contribute,
and the others are almost silent.

For an adapter, only the adapter is modified, because the base is never transferred.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from rlcore_models.lora import adapter_parameters, has_adapter, values_of, write_values
from rlcore_models.sharded import local
from rlcore_models.vision_encoder import text_model
from torch import Tensor, nn
from transformers import PreTrainedModel

LAYERS_AT_A_TIME = 6
MOST_PARTS = 5
OUTPUTS = ("o_proj", "down_proj", "c_proj", "out_proj", "dense", "dense_4h_to_h", "fc2")
"""Names of the modules whose outputs are added to the residual stream."""
SCORES = ("q_proj", "k_proj")
"""Names of the modules whose outputs are multiplied to the scores of attention."""
RESIDUAL = 3.0
"""Size of all contributing outputs together, in that of the embeddings. Larger values amplify rounding, smaller ones
hide stale tensors: with 3, a stale tensor of SmolLM2 in bfloat16 changes a log-probability by at least 5 times as much
as rounding does."""
SILENT = 2.0**-10
"""Size of the other outputs, in that of a contributing one."""
SCORE_STD = 2.0
LOGITS_STD = 2.0
PROBE_TOKENS = 16


def parts_of(model: PreTrainedModel) -> int:
    """Return in how many parts the layers must contribute, so that rounding stays small beside each tensor."""
    if model.dtype != torch.bfloat16 or has_adapter(model):  # float16 rounds eight times as finely
        return 1
    layers = int(model.config.get_text_config().num_hidden_layers)
    return max(1, min(MOST_PARTS, -(-layers // LAYERS_AT_A_TIME)))


@contextmanager
def perturbed_weights(
    model: PreTrainedModel, part: int = 0, *, forward: Callable[..., Any] | None = None
) -> Iterator[None]:
    """Modify every trained tensor inside the block, and restore it exactly afterwards.

    Of a parameter that is divided between processes, each process reverses its part.

    Args:
        model: the model
        part: which layers contribute, below `parts_of`
        forward: computes the model; None calls it
    """
    if has_adapter(model):
        before = values_of(model)
        with torch.no_grad():
            for parameter in adapter_parameters(model).values():
                local(parameter.detach()).copy_(_turned(local(parameter.detach())))
        try:
            yield
        finally:
            write_values(model, before)
        return
    narrow = model.dtype == torch.float16  # whose range is too small to scale numbers back and forth
    kept = {parameter: local(parameter.detach()).clone() for parameter in model.parameters() if narrow}
    factors = {parameter: _factor(local(parameter.detach())) for parameter in model.parameters()}
    _reverse(factors)
    try:
        _balance(model, factors, part, forward or model)
        yield
    finally:
        if narrow:
            for parameter, values in kept.items():
                local(parameter.detach()).copy_(values)
        else:
            _reverse({one: (1 / factor).expand(len(local(one))).flip(0) for one, factor in factors.items()})


def _turned(value: Tensor) -> Tensor:
    """Return a modified copy of an adapter tensor. Zeros of a new adapter get nonzero values to affect the logits."""
    if not value.any():
        return torch.arange(value.numel()).cos().div(math.sqrt(value.shape[-1])).view(value.shape).to(value)
    return value.flip(0) * (1.0 if value.ndim < 2 else _factor(value).item())


def _factor(tensor: Tensor) -> Tensor:
    """Return powers of two that scale a tensor, for all or each of its first axis, in float32.

    A matrix gets entries of about ``1 / sqrt(fan in)``, unless they are larger. The entries of a vector are halved and
    doubled in turn, since those of a norm can be so similar that their order makes little difference.
    """
    if tensor.ndim == 1:
        return torch.tensor([0.5, 2.0], device=tensor.device).repeat(len(tensor) // 2 + 1)[: len(tensor)]
    size = _size(tensor) * math.sqrt(tensor.shape[-1]) if tensor.numel() else 0.0
    power = 2.0 ** max(0, round(-math.log2(size))) if 0 < size < math.inf else 1.0
    return torch.full((1,), power, device=tensor.device)


@torch.no_grad()
def _reverse(factors: dict[nn.Parameter, Tensor]) -> None:
    for parameter, factor in factors.items():
        values = local(parameter.detach())
        values.copy_(values.flip(0) * factor.to(values.dtype).view(-1, *[1] * (values.ndim - 1)))


@torch.no_grad()
def _balance(
    model: PreTrainedModel, factors: dict[nn.Parameter, Tensor], part: int, forward: Callable[..., Any]
) -> None:
    """Scale outputs of the layers and the logits, measured in a forward pass, and add the scales to the factors."""
    text: Any = text_model(model)
    embeddings: Any = model.get_input_embeddings()
    ids_1T = (torch.arange(PROBE_TOKENS, device=model.device)[None] * 7 + 3) % len(embeddings.weight)
    powers: list[tuple[nn.Module, float]] = []
    named = [(name.rpartition(".")[2], module) for name, module in text.named_modules()]
    outputs = [module for name, module in named if name in OUTPUTS]
    if not outputs or not isinstance(getattr(text, "norm", None), nn.Module):
        return
    parts = parts_of(model)
    first, end = len(outputs) * part // parts, len(outputs) * (part + 1) // parts
    share = RESIDUAL / math.sqrt(end - first)
    of_output = {module: share * (1.0 if first <= place < end else SILENT) for place, module in enumerate(outputs)}
    sizes = {module: SCORE_STD**0.5 for name, module in named if name in SCORES}

    def scaled(module: nn.Module, factor: float) -> float:
        power = 2.0 ** round(math.log2(factor)) if 0 < factor < math.inf else 1.0
        powers.append((module, power))
        return power

    def measure(_: nn.Module, __: Any, output: Tensor) -> None:
        sizes.update({module: part * _size(output) for module, part in of_output.items()})

    def limit(module: nn.Module, _: Any, output: Tensor) -> Tensor:
        size = _size(output)
        return output * scaled(module, sizes[module] / size if size else 1.0)

    hooks = [module.register_forward_hook(limit) for module in (*of_output, *sizes)]
    hooks.append(embeddings.register_forward_hook(measure))
    try:
        logits_TV = forward(input_ids=ids_1T, use_cache=False).logits[0].float()
    finally:
        for hook in hooks:
            hook.remove()
    spread = float(logits_TV.std())
    scaled(text.norm, LOGITS_STD / spread if spread else 1.0)
    for module, power in powers:  # not in the hooks, where divided weights are gathered
        for parameter in module.parameters(recurse=False):
            local(parameter.detach()).mul_(power)
            factors[parameter] = factors[parameter] * power


def _size(tensor: Tensor) -> float:
    """Return the root mean square."""
    return float(tensor.float().square().mean().sqrt())
