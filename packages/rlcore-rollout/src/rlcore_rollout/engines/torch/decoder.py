"""The forward pass, written for sampling: few operations a layer, logits only where a token is drawn.

Axes: B sequences, T new tokens of each, N = B * T, H heads, K key heads, G = H / K, E head width, D width, S positions
of the cache, V vocabulary.

Every operation treats its rows alike, so a sequence's numbers do not depend on its neighbours, as long as the
libraries below do so too: `rlcore_rollout.engines.torch.rows` says when they do.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from rlcore_rollout.engines.torch.cache import RowCache
from rlcore_rollout.engines.torch.weights import Layer, Projection, Weights, interleave

KEY_BLOCK = 128
"""Attention sums values in blocks of this many positions: how oneMKL splits longer sums depends on their length."""
KEY_PAD = 32
"""The positions that attention looks at are a multiple of this."""


class Decoder:
    """A model's forward pass over the rows of a cache."""

    def __init__(self, weights: Weights):
        self.weights = weights
        self._rotations = torch.empty(0, device=weights.device)

    def decode(self, tokens_B: Tensor, positions_B: Tensor, longest: int, cache: RowCache) -> Tensor:
        """Logits [B, V] after one more token in each of the rows 0 … B-1.

        Args:
            tokens_B: the new token of each row
            positions_B: where it stands; keys before it must be in the cache
            longest: the largest position whose result matters
            cache: receives the new keys and values
        """
        rows_B = torch.arange(len(tokens_B), device=tokens_B.device)
        hidden_ND = self._blocks(tokens_B[:, None], positions_B[:, None], rows_B, longest, cache, every_row=True)
        return self._logits(hidden_ND)

    def extend(
        self, tokens_BT: Tensor, starts_B: Tensor, rows_B: Tensor, lasts_B: Tensor, longest: int, cache: RowCache
    ) -> Tensor:
        """Logits [B', V] after T more tokens in each of the given rows; B' is B padded to a multiple of 8.

        Args:
            tokens_BT: new tokens, padded at the end with any valid token
            starts_B: position of the first one
            rows_B: the rows of the cache
            lasts_B: index below T of each row's last real token: its logits are returned
            longest: the largest position in use
            cache: receives the new keys and values, those of the padding too
        """
        count, width = tokens_BT.shape
        positions_BT = starts_B[:, None] + torch.arange(width, device=tokens_BT.device)
        hidden_ND = self._blocks(tokens_BT, positions_BT, rows_B, longest, cache, every_row=False)
        picked_B = torch.arange(count, device=tokens_BT.device) * width + lasts_B
        return self._logits(hidden_ND[functional.pad(picked_B, (0, -count % 8))])

    def _logits(self, hidden_ND: Tensor) -> Tensor:
        normed = functional.rms_norm(hidden_ND, hidden_ND.shape[-1:], self.weights.norm, self.weights.shape.epsilon)
        return functional.linear(normed, *self.weights.head).float()

    def _blocks(
        self, tokens_BT: Tensor, positions_BT: Tensor, rows_B: Tensor, longest: int, cache: RowCache, *, every_row: bool
    ) -> Tensor:
        """Hidden states [N, D] after the last block."""
        shape = self.weights.shape
        count, width = tokens_BT.shape
        heads, key_heads, head_width = shape.heads, shape.key_heads, shape.head_width
        group = heads // key_heads
        queries, both = heads * head_width, (heads + key_heads) * head_width
        rotation_N = self._rotation(cache.capacity)[positions_BT.flatten()][:, None]
        seen = min(-(-(longest + 1) // KEY_PAD) * KEY_PAD, cache.capacity)
        mask = self._mask(positions_BT, seen, key_heads, group)
        key_head_K = torch.arange(key_heads, device=tokens_BT.device)
        slots_BKT = (rows_B[:, None, None] * key_heads + key_head_K[:, None]) * cache.capacity + positions_BT[:, None]
        slots = slots_BKT.flatten()
        hidden = functional.embedding(tokens_BT.flatten(), self.weights.embedding)
        for index, layer in enumerate(self.weights.layers):
            normed = functional.rms_norm(hidden, (shape.width,), layer.attention_norm, shape.epsilon)
            projected = self._query_key_value(normed, layer, both)
            turned = self._rotate(projected[:, :both].view(count * width, -1, head_width), rotation_N, layer, heads)
            query = turned[:, :heads].view(count, width, key_heads, group, head_width)
            key = turned[:, heads:].view(count, width, key_heads, head_width).transpose(1, 2)
            value = projected[:, both:].view(count, width, key_heads, head_width).transpose(1, 2)
            keys, values = cache.keys[index], cache.values[index]
            keys.view(-1, head_width).index_copy_(0, slots, key.reshape(-1, head_width))
            values.view(-1, head_width).index_copy_(0, slots, value.reshape(-1, head_width))
            keys, values = keys[:, :, :seen], values[:, :, :seen]
            if every_row:
                keys, values = keys[:count], values[:count]
            else:
                keys, values = keys.index_select(0, rows_B), values.index_select(0, rows_B)
            query = query.permute(0, 2, 3, 1, 4).reshape(count * key_heads, group * width, head_width)
            mixed = attention(query, keys.flatten(0, 1), values.flatten(0, 1), mask, head_width**-0.5)
            mixed = mixed.view(count, heads, width, head_width).transpose(1, 2).reshape(count * width, queries)
            hidden = hidden + functional.linear(mixed, *layer.attention_output)
            normed = functional.rms_norm(hidden, (shape.width,), layer.mlp_norm, shape.epsilon)
            gate, up = _project(normed, layer.gate_up).chunk(2, dim=-1)
            hidden = hidden + functional.linear(functional.silu(gate) * up, *layer.down)
        return hidden

    def _query_key_value(self, normed: Tensor, layer: Layer, both: int) -> Tensor:
        projected = _project(normed, layer.query_key_value)
        if self.weights.fused:
            return projected
        turned = interleave(projected[:, :both].reshape(len(normed), -1, self.weights.shape.head_width), 2).flatten(1)
        return torch.cat((turned, projected[:, both:]), dim=-1)

    def _rotate(self, heads_NHE: Tensor, rotation_N: Tensor, layer: Layer, heads: int) -> Tensor:
        """Rotary positions (RoFormer, arXiv:2104.09864, eq. 34): neighbours as one complex number, turned."""
        epsilon = self.weights.shape.epsilon
        if layer.query_norm is not None and layer.key_norm is not None:
            query = functional.rms_norm(heads_NHE[:, :heads], heads_NHE.shape[-1:], layer.query_norm, epsilon)
            key = functional.rms_norm(heads_NHE[:, heads:], heads_NHE.shape[-1:], layer.key_norm, epsilon)
            heads_NHE = torch.cat((query, key), dim=1)
        pairs = torch.view_as_complex(heads_NHE.float().view(*heads_NHE.shape[:2], -1, 2))
        return torch.view_as_real(pairs * rotation_N).flatten(2).to(heads_NHE.dtype)

    def _rotation(self, positions: int) -> Tensor:
        """The rotation of each position as complex numbers [positions, E / 2]."""
        if len(self._rotations) < positions:
            angles = torch.arange(positions, device=self.weights.device).float()[:, None] * self.weights.frequencies
            self._rotations = torch.polar(torch.full_like(angles, self.weights.rotation_scale), angles)
        return self._rotations

    def _mask(self, positions_BT: Tensor, seen: int, key_heads: int, group: int) -> Tensor:
        """0 where a key may be seen, -inf elsewhere, [B * K, G * T, seen]; one row for the group when T is 1."""
        count, width = positions_BT.shape
        hidden = torch.arange(seen, device=positions_BT.device) > positions_BT[:, :, None]
        mask = torch.zeros(hidden.shape, dtype=self.weights.dtype, device=hidden.device)
        mask.masked_fill_(hidden, float("-inf"))
        rows = 1 if width == 1 else group
        expanded = mask[:, None, None].expand(count, key_heads, rows, width, seen)
        return expanded.reshape(count * key_heads, rows * width, seen)


def attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """``softmax(scale * query keys^T + mask) values`` for [batch, M, E] against [batch, S, E], by blocks of keys."""
    weights = torch.softmax(torch.baddbmm(mask, query, keys.transpose(1, 2), alpha=scale), dim=-1)
    mixed = torch.bmm(weights[:, :, :KEY_BLOCK], values[:, :KEY_BLOCK])
    for start in range(KEY_BLOCK, keys.shape[1], KEY_BLOCK):
        mixed += torch.bmm(weights[:, :, start : start + KEY_BLOCK], values[:, start : start + KEY_BLOCK])
    return mixed


def _project(x: Tensor, projections: tuple[Projection, ...]) -> Tensor:
    outputs = [functional.linear(x, *projection) for projection in projections]
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
