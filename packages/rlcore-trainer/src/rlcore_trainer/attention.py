"""Attention within the sequences of one packed row, for any model that uses transformers' attention interface.

Axes: ``N`` the tokens of the packed row, ``H`` heads, ``D`` the size of a head, ``B`` the sequences of a bucket,
``L`` the longest of a bucket, ``P`` the places of all buckets together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

NAME = "rlcore_packed"
SLACK = 1.15
"""Sequences share a bucket while the longest has at most this many times the tokens of the shortest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLayout:
    """Where the sequences of a packed row stand, and how attention takes them.

    Sequences of similar length form a bucket of shape [B, L]; the ends of the shorter ones repeat their last token,
    where causality hides it from every real token. When the row is its buckets already, nothing is moved.
    """

    lengths: tuple[int, ...]
    offsets: Tensor
    """Start of each sequence and the end of the last, int32."""
    buckets: tuple[tuple[int, int], ...]
    """``(B, L)`` of each bucket."""
    gather_P: Tensor | None
    """The position in the row that goes to each place; None when places and positions are the same."""
    scatter_N: Tensor | None
    """The place of each position of the row."""

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device, *, slack: float = SLACK) -> PackedLayout:
        """The layout of sequences that stand one after another in a row."""
        ends = torch.tensor(lengths).cumsum(0)
        starts = ends - torch.tensor(lengths)
        members: list[list[int]] = []
        for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
            if not members or lengths[members[-1][0]] > slack * lengths[i]:
                members.append([])
            members[-1].append(i)
        positions, real = [], []
        for bucket in members:
            within_1L = torch.arange(lengths[bucket[0]])[None]
            last_B1 = torch.tensor([lengths[i] - 1 for i in bucket])[:, None]
            positions.append((starts[bucket][:, None] + torch.minimum(within_1L, last_B1)).flatten())
            real.append((within_1L <= last_B1).flatten())
        gather_P, real_P = torch.cat(positions), torch.cat(real)
        scatter_N = torch.empty(int(ends[-1]), dtype=torch.long)
        scatter_N[gather_P[real_P]] = torch.arange(len(gather_P))[real_P]
        moved = not torch.equal(gather_P, torch.arange(len(scatter_N)))
        return cls(
            lengths=tuple(lengths),
            offsets=torch.cat([starts[:1], ends]).to(device=device, dtype=torch.int32),
            buckets=tuple((len(bucket), lengths[bucket[0]]) for bucket in members),
            gather_P=gather_P.to(device) if moved else None,
            scatter_N=scatter_N.to(device) if moved else None,
        )


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
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention inside each sequence of the row; query, key and value are [1, H, N, D].

    Returns:
        The output [1, N, H, D] and, as the interface wants it, None for the weights.
    """
    query_NHD, key_NHD, value_NHD = (x[0].transpose(0, 1) for x in (query, key, value))
    groups = query_NHD.shape[1] // key_NHD.shape[1]
    if query.is_cuda and query.dtype in (torch.float16, torch.bfloat16) and not dropout:
        from torch.nn.attention.varlen import varlen_attn

        longest = max(packed.lengths)
        window = (sliding_window - 1, 0) if sliding_window else (-1, 0)
        output = varlen_attn(
            query_NHD,
            key_NHD,
            value_NHD,
            packed.offsets,
            packed.offsets,
            longest,
            longest,
            scale=scaling,
            window_size=window,
            enable_gqa=groups > 1,
        )
        assert isinstance(output, Tensor)
        return output[None], None
    if packed.gather_P is not None:
        query_NHD, key_NHD, value_NHD = (x[packed.gather_P] for x in (query_NHD, key_NHD, value_NHD))
    outputs, start = [], 0
    for sequences, length in packed.buckets:
        places = slice(start, start := start + sequences * length)
        query_BHLD, key_BHLD, value_BHLD = (
            x[places].view(sequences, length, *x.shape[1:]).transpose(1, 2) for x in (query_NHD, key_NHD, value_NHD)
        )
        mask = None
        if sliding_window and length > sliding_window:
            distance = torch.arange(length, device=query.device)[:, None] - torch.arange(length, device=query.device)
            mask = (distance >= 0) & (distance < sliding_window)
        output_BHLD = scaled_dot_product_attention(
            query_BHLD,
            key_BHLD,
            value_BHLD,
            attn_mask=mask,
            is_causal=mask is None,
            dropout_p=dropout,
            scale=scaling,
            enable_gqa=groups > 1,
        )
        outputs.append(output_BHLD.transpose(1, 2).flatten(0, 1))
    output_PHD = torch.cat(outputs) if len(outputs) > 1 else outputs[0]
    return (output_PHD if packed.scatter_N is None else output_PHD[packed.scatter_N])[None], None


AttentionInterface.register(NAME, packed_attention)


@contextmanager
def packed_attention_of(model: PreTrainedModel) -> Iterator[None]:
    """Inside, the model attends with `packed_attention`; afterwards as before, so that others may share the model.

    The backward pass belongs inside too: with gradient checkpointing it runs the layers again.
    """
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)
