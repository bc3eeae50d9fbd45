"""Attention within the sequences of a packed row, for all models that use transformers' attention interface.

In half precision, the sums over the layers (the residual stream) are kept in float32. Every layer would otherwise round
them again, which is the largest part of the difference between the log-probabilities of engine and trainer.

Axes: ``N`` the tokens of the packed row, ``H`` heads, ``D`` the size of a head, ``B`` the sequences of a bucket,
``L`` the longest sequence of a bucket.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from rlcore_models.vision_encoder import is_vision_language, text_model
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.hooks import RemovableHandle
from transformers import AttentionInterface, PreTrainedModel

from rlcore_trainer.batching.packed_layout import PackedLayout
from rlcore_trainer.policy.attention.cpu import CpuKernel
from rlcore_trainer.policy.attention.shared import Kernel, VarlenKernel, shared_attention
from rlcore_trainer.policy.widened import HALF

NAME = "rlcore_packed"


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packed: PackedLayout,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Compute causal attention within each sequence of the row; query, key and value are [1, H, N, D].

    If a team computes the row, they contain only the tokens of this process.

    Returns:
        The output [1, N, H, D], and None for the weights, as the interface requires.

    Raises:
        ValueError: the model limits the scores of attention, or adds attention sinks.
    """
    if softcap is not None or s_aux is not None:
        raise ValueError(f"packed attention computes no {'limit of scores' if s_aux is None else 'attention sinks'}")
    # Rotary positions are float32 where the sums over the layers are, and make queries and keys float32.
    query_NHD, key_NHD, value_NHD = (x[0].to(value.dtype).transpose(0, 1) for x in (query, key, value))
    if (team := packed.team) is not None:
        team.check_heads(query_NHD.shape[1])
        query_NHD, key_NHD, value_NHD = (team.by_heads(x, packed.tokens) for x in (query_NHD, key_NHD, value_NHD))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    half = value.dtype in HALF
    flash = query.device.type == "cpu" or (query.is_cuda and half)
    if flash and not dropout and not (sliding_window and packed.longest > sliding_window):
        kernel: Kernel = VarlenKernel() if query.is_cuda else CpuKernel()
        output_NHD = shared_attention(query_NHD, key_NHD, value_NHD, packed, scale, kernel=kernel)
    else:
        output_NHD = _unshared(query_NHD, key_NHD, value_NHD, packed, scale, dropout, sliding_window)
    return (output_NHD if team is None else team.by_tokens(output_NHD))[None], None


def _unshared(
    query_NHD: Tensor,
    key_NHD: Tensor,
    value_NHD: Tensor,
    packed: PackedLayout,
    scale: float,
    dropout: float,
    sliding_window: int | None,
) -> Tensor:
    """Compute attention on any device. Each response gets a copy of its prompt's keys and values."""
    whole = packed.whole
    placed = [whole.places(x) for x in (query_NHD, key_NHD, value_NHD)]
    outputs, start = [], 0
    for sequences, length in whole.shapes:
        places = slice(start, start := start + sequences * length)
        query_BHLD, key_BHLD, value_BHLD = (
            x[places].view(sequences, length, *x.shape[1:]).transpose(1, 2) for x in placed
        )
        mask = None
        if sliding_window and length > sliding_window:
            distance = torch.arange(length, device=query_NHD.device)
            distance = distance[:, None] - distance
            mask = (distance >= 0) & (distance < sliding_window)
        output_BHLD = scaled_dot_product_attention(
            query_BHLD,
            key_BHLD,
            value_BHLD,
            attn_mask=mask,
            is_causal=mask is None,
            dropout_p=dropout,
            scale=scale,
            enable_gqa=query_NHD.shape[1] != key_NHD.shape[1],
        )
        outputs.append(output_BHLD.transpose(1, 2).flatten(0, 1))
    return whole.positions(torch.cat(outputs) if len(outputs) > 1 else outputs[0])


AttentionInterface.register(NAME, packed_attention)


@contextmanager
def packed_attention_of(model: PreTrainedModel) -> Iterator[None]:
    """Make the model use `packed_attention` inside the block, and restore its attention afterwards.

    The backward pass must run inside the block too, because gradient checkpointing recomputes the layers. Restoring the
    attention lets other code share the model. A vision tower keeps its own attention.
    """
    layers = text_model(model) if is_vision_language(model) else model
    assert isinstance(layers, PreTrainedModel)
    before = layers.config._attn_implementation
    layers.set_attn_implementation(NAME)
    hooks = _float32_sums(text_model(model))
    try:
        yield
    finally:
        layers.set_attn_implementation(before)
        for hook in hooks:
            hook.remove()


def _float32_sums(model: torch.nn.Module) -> list[RemovableHandle]:
    """Make a model of half precision add the outputs of its layers in float32, and return the hooks that do so.

    The sum begins with the embeddings, and each norm rounds its result for the products after it. A norm other than
    RMSNorm does not accept inputs of another precision than its weights; such a model is left as it is.
    """
    embeddings: torch.nn.Module = model.get_input_embeddings()  # type: ignore[operator]
    if next(embeddings.parameters()).dtype not in HALF:
        return []
    norms = [module for module in model.modules() if "norm" in type(module).__name__.lower()]
    if not all(type(norm).__name__.endswith("RMSNorm") for norm in norms):
        return []
    # First among the hooks, so that weights that `computed_in_float32` has converted are still float32.
    rounded = [norm.register_forward_hook(_round_to_weight, prepend=True) for norm in norms]
    return [embeddings.register_forward_hook(lambda _, inputs, output: output.float()), *rounded]


def _round_to_weight(norm: torch.nn.Module, _: Any, output: Tensor) -> Tensor:
    return output.to(next(norm.parameters()).dtype)
