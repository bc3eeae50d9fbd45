"""The forward pass, optimised for sampling: few operations per layer, and logits only where a token is drawn.

Axes: B sequences, T new tokens of each, N = B * T, H heads, K key heads, G = H / K, E head width, D width, S positions
of the cache, P shared prompts with M lanes each, V vocabulary.

A sequence's keys and values are stored in two places. Those of its first prompt are in a row shared with its siblings.
All later ones are in a row of its own, where position 0 is the first position after that prompt.

Every operation treats all rows alike, so a sequence's numbers do not depend on its neighbours, provided that the
underlying libraries behave the same way. `rlcore_rollout.engines.torch.row_probe` checks whether they do.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from rlcore_rollout.engines.torch.attention import mix, scores
from rlcore_rollout.engines.torch.cache import RowCache
from rlcore_rollout.engines.torch.config import BATCH_TOKENS
from rlcore_rollout.engines.torch.projections import Projection, interleave
from rlcore_rollout.engines.torch.prompts import KEY_PAD, Shared
from rlcore_rollout.engines.torch.vision import VisualTokens
from rlcore_rollout.engines.torch.weights import Layer, Weights

QUERY_PAD = 8
"""The number of queries per key head that attend to a shared prompt is padded to a multiple of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The smallest and largest number of rows in a product of the model's projections."""

    least: int = 1
    most: int = BATCH_TOKENS


class Decoder:
    """A model's forward pass over the rows of a cache, with products of the given numbers of rows."""

    def __init__(self, weights: Weights, rows: Rows):
        self.weights, self.rows = weights, rows
        self._rotations = torch.empty(0, device=weights.device)

    def decode(
        self, tokens_B: Tensor, places_B: Tensor, positions_B: Tensor, longest: int, cache: RowCache, shared: Shared
    ) -> Tensor:
        """Return the logits [B, V] after one more token in each of the rows 0 … B-1.

        Args:
            tokens_B: the new token of each row
            places_B: its position in its row; keys before it must be in the cache
            positions_B: its rotary position
            longest: the largest position whose result is used
            cache: receives the new keys and values
            shared: the prompts that precede the rows
        """
        rows_B = torch.arange(len(tokens_B), device=tokens_B.device)
        hidden_ND = self._blocks(
            tokens_B[:, None], places_B[:, None], positions_B[:, None], rows_B, longest, cache, shared, every_row=True
        )
        return self._logits(hidden_ND)

    def extend(
        self,
        tokens_BT: Tensor,
        starts_B: Tensor,
        positions: Tensor,
        rows_B: Tensor,
        lasts_B: Tensor,
        longest: int,
        cache: RowCache,
        shared: Shared | None,
        visual: VisualTokens | None = None,
    ) -> Tensor:
        """Return the logits [B', V] after T more tokens in each given row. B' is B padded to a multiple of 8.

        Args:
            tokens_BT: new tokens, padded at the end with any valid token
            starts_B: position of the first new token in its row
            positions: rotary positions [B, T], or [3, B, T] where visual tokens have one for each axis
            rows_B: the rows of the cache
            lasts_B: index below T of each row's last real token, whose logits are returned
            longest: the largest position in use
            cache: receives the new keys and values, including those of the padding
            shared: the prompts that precede the rows; None when the rows are prompts themselves
            visual: the visual tokens among the new ones
        """
        count, width = tokens_BT.shape
        places_BT = starts_B[:, None] + torch.arange(width, device=tokens_BT.device)
        hidden_ND = self._blocks(
            tokens_BT, places_BT, positions, rows_B, longest, cache, shared, every_row=False, visual=visual
        )
        picked_B = torch.arange(count, device=tokens_BT.device) * width + lasts_B
        return self._logits(hidden_ND[functional.pad(picked_B, (0, -count % 8))])

    def _logits(self, hidden_ND: Tensor) -> Tensor:
        return self.weights.head(rms_norm(hidden_ND, self.weights.norm, self.weights.shape.epsilon))

    def _blocks(
        self,
        tokens_BT: Tensor,
        places_BT: Tensor,
        positions: Tensor,
        rows_B: Tensor,
        longest: int,
        cache: RowCache,
        shared: Shared | None,
        *,
        every_row: bool,
        visual: VisualTokens | None = None,
    ) -> Tensor:
        """Return the hidden states [N, D] after the last block."""
        shape = self.weights.shape
        count, width = tokens_BT.shape
        heads, key_heads, head_width = shape.heads, shape.key_heads, shape.head_width
        group, scale = heads // key_heads, head_width**-0.5
        queries, both = heads * head_width, (heads + key_heads) * head_width
        room = cache.capacity
        if shared is not None:
            room += shared.cache.capacity
            there, back = _lanes(shared, key_heads, group * width)
        rotation_N = self._rotation(room, positions)[:, None]
        seen = min(-(-(longest + 1) // KEY_PAD) * KEY_PAD, cache.capacity)
        mask = self._mask(places_BT, seen, key_heads, group)
        rows_N, places_N = rows_B.repeat_interleave(width), places_BT.flatten()
        # The sums over the layers are float32, since each one would otherwise be rounded to half precision.
        hidden = functional.embedding(tokens_BT.flatten(), self.weights.embedding).float()
        if visual is not None:
            hidden.index_copy_(0, visual.places_K, visual.features_KD.float())
        for index, layer in enumerate(self.weights.layers):
            normed = rms_norm(hidden, layer.attention_norm, shape.epsilon)
            projected = self._query_key_value(normed, layer, both)
            turned = self._rotate(projected[:, :both].view(count * width, -1, head_width), rotation_N, layer, heads)
            query = turned[:, :heads].view(count, width, key_heads, group, head_width)
            value = projected[:, both:].view(count * width, key_heads, head_width)
            cache.write(index, rows_N, places_N, turned[:, heads:], value)
            keys, values = cache.keys[index, :, :, :, :seen], cache.values[index, :, :, :seen]
            if every_row:
                keys, values = keys[:count], values[:count]
            else:
                keys, values = keys.index_select(0, rows_B), values.index_select(0, rows_B)
            query = query.permute(0, 2, 3, 1, 4).reshape(count * key_heads, group * width, head_width) * scale
            own = scores(query, keys.flatten(0, 1), mask)
            if shared is None:
                mixed = mix(own.softmax(-1), values.flatten(0, 1))
            else:
                mixed = _attend_both(query, own, values.flatten(0, 1), shared, index, there, back)
            mixed = mixed.view(count, heads, width, head_width).transpose(1, 2).reshape(count * width, queries)
            hidden = hidden + self._project(mixed, layer.attention_output)
            normed = rms_norm(hidden, layer.mlp_norm, shape.epsilon)
            gate, up = self._project(normed, *layer.gate_up).chunk(2, dim=-1)
            hidden = hidden + self._project(functional.silu(gate) * up, layer.down)
            if visual is not None and index < len(visual.deepstack):
                hidden.index_add_(0, visual.places_K, visual.deepstack[index].float())
        return hidden

    def _project(self, x_NI: Tensor, *projections: Projection) -> Tensor:
        """Return the outputs of projections, one after another in the last axis."""
        parts = []
        for part_NI in torch.split(x_NI, self.rows.most):
            missing = self.rows.least - len(part_NI)
            padded_NI = functional.pad(part_NI, (0, 0, 0, missing)) if missing > 0 else part_NI
            outputs = [projection(padded_NI)[: len(part_NI)] for projection in projections]
            parts.append(outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _query_key_value(self, normed: Tensor, layer: Layer, both: int) -> Tensor:
        projected = self._project(normed, *layer.query_key_value)
        if self.weights.fused:
            return projected
        turned = interleave(projected[:, :both].reshape(len(normed), -1, self.weights.shape.head_width), 2).flatten(1)
        return torch.cat((turned, projected[:, both:]), dim=-1)

    def _rotate(self, heads_NHE: Tensor, rotation_N: Tensor, layer: Layer, heads: int) -> Tensor:
        """Apply rotary positions (RoFormer, arXiv:2104.09864, eq. 34): rotate adjacent pairs as complex numbers."""
        epsilon = self.weights.shape.epsilon
        if layer.query_norm is not None and layer.key_norm is not None:
            query = rms_norm(heads_NHE[:, :heads], layer.query_norm, epsilon)
            key = rms_norm(heads_NHE[:, heads:], layer.key_norm, epsilon)
            heads_NHE = torch.cat((query, key), dim=1)
        pairs = torch.view_as_complex(heads_NHE.float().view(*heads_NHE.shape[:2], -1, 2))
        return torch.view_as_real(pairs * rotation_N).flatten(2).to(heads_NHE.dtype)

    def _rotation(self, room: int, positions: Tensor) -> Tensor:
        """Return the rotation of each token as complex numbers [N, E / 2].

        Args:
            room: a position that is larger than all others
            positions: [B, T], or [3, B, T], which needs a model with multimodal rotary positions
        """
        if len(self._rotations) < room:
            angles = torch.arange(room, device=self.weights.device).float()[:, None] * self.weights.frequencies
            self._rotations = torch.polar(torch.full_like(angles, self.weights.rotation_scale), angles)
        if positions.ndim == 2:
            return self._rotations[positions.flatten()]
        assert self.weights.axes_F is not None
        return self._rotations.gather(0, positions.flatten(1)[self.weights.axes_F].T)

    def _mask(self, places_BT: Tensor, seen: int, key_heads: int, group: int) -> Tensor:
        """Return [B * K, G * T, seen]: 0 for visible keys, -inf elsewhere; one row per group when T is 1."""
        count, width = places_BT.shape
        hidden = torch.arange(seen, device=places_BT.device) > places_BT[:, :, None]
        mask = torch.where(hidden, float("-inf"), 0.0).to(self.weights.dtype)
        rows = 1 if width == 1 else group
        expanded = mask[:, None, None].expand(count, key_heads, rows, width, seen)
        return expanded.reshape(count * key_heads, rows * width, seen)


def _attend_both(
    query: Tensor, own: Tensor, own_values: Tensor, shared: Shared, layer: int, there: Tensor, back: Tensor
) -> Tensor:
    """Attend from queries [B * K, G * T, E] to the prompts of their sequences and to the sequences' own tokens.

    Args:
        query: the queries
        own: their scores of the own tokens
        own_values: the values of the own tokens
        shared: the prompts
        layer: index of the layer
        there: see `_lanes`
        back: see `_lanes`
    """

    def together(x: Tensor) -> Tensor:
        return x.flatten(0, 1)[there].view(len(shared.mask_N1S), -1, x.shape[2])

    def apart(x: Tensor) -> Tensor:
        return x.flatten(0, 1)[back].view(*query.shape[:2], -1)

    keys, values = (tensor.flatten(0, 1) for tensor in shared.layer(layer))
    of_prompt = apart(scores(together(query), keys, shared.mask_N1S))
    # The sum of a row is split alike for any length of the prompt, since that is padded to a multiple of `KEY_PAD`.
    weights = torch.cat((of_prompt, own), dim=-1).softmax(dim=-1)
    seen = of_prompt.shape[2]
    return apart(mix(together(weights[:, :, :seen]), values)) + mix(weights[:, :, seen:], own_values)


def _lanes(shared: Shared, key_heads: int, each: int) -> tuple[Tensor, Tensor]:
    """Return the indices that group the queries of a shared prompt.

    Returns:
        the index in [B, K, ``each``] of each query of each prompt and key head, [P * K * M'], M' = M * ``each`` padded;
        the index in those of each query of each sequence and key head, [B * K * ``each``]
    """
    lanes = shared.sequences_PM.shape[1]
    key_head_K1 = torch.arange(key_heads, device=shared.lanes_B.device)[:, None]
    query = torch.arange(each, device=shared.lanes_B.device)
    there = (shared.sequences_PM[:, None, :, None] * key_heads + key_head_K1[:, :, None]) * each + query
    there = functional.pad(there.flatten(2), (0, -lanes * each % QUERY_PAD))
    prompt_B11, lane_B11 = (shared.lanes_B // lanes)[:, None, None], (shared.lanes_B % lanes)[:, None, None]
    back = (prompt_B11 * key_heads + key_head_K1) * there.shape[2] + lane_B11 * each + query
    return there.flatten(), back.flatten()


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Return ``x / sqrt(mean(x²) + epsilon) * weight`` over the last axis (Zhang and Sennrich, arXiv:1910.07467).

    Computed in float32, and rounded to the type of the weight.

    Three times as fast on a CPU as the same function of torch, which consists of more operations there.
    """
    whole = x.float()
    norm = torch.linalg.vector_norm(whole, dim=-1, keepdim=True)
    scale = norm.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
    normed: Tensor = (whole * scale).mul_(weight).to(weight.dtype)
    return normed
