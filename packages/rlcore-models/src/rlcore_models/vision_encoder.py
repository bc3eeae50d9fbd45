"""The visual features of images from the vision tower of a Qwen-VL model, computed for all images at once.

Axes: ``P`` patches, ``K`` visual tokens, ``D`` the width of the text model, ``E`` the width of the tower, ``H`` heads,
``F`` half of the frequencies of a rotary embedding. A chunk is a run of patches that attend to each other: an image, or
a window of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from rlcore.images.fitting import FAMILIES, ImageProcessor
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from rlcore_models.pixels import frame_patches

OF_TOWER = r"(.*\.)?visual\..*"
"""Matches the full paths of the modules of a vision tower."""


@dataclass(frozen=True, slots=True)
class VisualFeatures:
    """What a vision tower computes from images, in the order of the images."""

    features_KD: Tensor
    """The embeddings of the visual tokens."""
    grids: tuple[tuple[int, int], ...]
    """Rows and columns of visual tokens of each image."""
    deepstack: tuple[Tensor, ...] = ()
    """One tensor [K, D] for each of the first layers, added to its hidden states of the visual tokens (Qwen3-VL)."""


def is_vision_language(module: nn.Module) -> bool:
    """Return whether a model of ``transformers`` is a vision-language model that this module supports."""
    return getattr(getattr(module, "config", None), "model_type", None) in FAMILIES


def text_model(module: nn.Module) -> nn.Module:
    """Return the part of a model that maps embeddings to hidden states: it has ``embed_tokens``, ``layers``, ``norm``.

    Args:
        module: a causal language model or a vision-language model of ``transformers``
    """
    base: Any = module.base_model
    return base.language_model if is_vision_language(module) else base  # type: ignore[no-any-return]


def vision_tower(module: nn.Module) -> nn.Module:
    """Return the vision tower of a vision-language model, with the layers that merge patches to visual tokens."""
    base: Any = module.base_model
    return base.visual  # type: ignore[no-any-return]


def visual_features(module: nn.Module, encoded: Sequence[bytes], processor: ImageProcessor) -> VisualFeatures:
    """Compute the visual features of images.

    Equal to ``module.get_image_features``, which computes the attention of one image, or window, after the other. Here
    chunks of equal length are one call. Gradients flow to the tower if they are enabled.

    Args:
        module: a Qwen2-VL, Qwen2.5-VL or Qwen3-VL model
        encoded: the images, encoded and fitted; at least one
        processor: the processor that fitted them

    Raises:
        DataError: an image cannot be decoded, or it is not fitted.
    """
    tower: Any = vision_tower(module)
    loaded = [frame_patches(data, processor) for data in encoded]
    grids = [(rows, columns) for _, rows, columns in loaded]
    device = tower.patch_embed.proj.weight.device
    hidden_PE = _embedded(tower, torch.cat([frame for frame, _, _ in loaded]).to(device))
    window = _window(tower)
    geometry = [_geometry(rows, columns, tower.spatial_merge_size, window) for rows, columns in grids]
    rotary = _rotary(tower, torch.cat([each.places_P2 for each in geometry]).to(device))
    if hasattr(tower, "pos_embed"):
        hidden_PE = hidden_PE + _learned_positions(tower, geometry, grids).to(hidden_PE.dtype)
    whole = _Chunks.of([[rows * columns] for rows, columns in grids], None, rotary)
    windows = None
    if window:
        order = _joined([each.window_order_P for each in geometry])
        windows = _Chunks.of([each.window_lengths for each in geometry], order.to(device), rotary)
    full_blocks = getattr(tower, "fullatt_block_indexes", range(len(tower.blocks)))
    deep_blocks = list(getattr(tower, "deepstack_visual_indexes", ()))
    deepstack: list[Tensor] = []
    remember = tower.gradient_checkpointing and tower.training and torch.is_grad_enabled()
    for index, block in enumerate(tower.blocks):
        chunks = whole if windows is None or index in full_blocks else windows
        if remember:
            hidden_PE = checkpoint(_block, block, hidden_PE, chunks, use_reentrant=False)
        else:
            hidden_PE = _block(block, hidden_PE, chunks)
        if index in deep_blocks:
            deepstack.append(tower.deepstack_merger_list[deep_blocks.index(index)](hidden_PE))
    merge = tower.spatial_merge_size
    tokens = tuple((rows // merge, columns // merge) for rows, columns in grids)
    return VisualFeatures(tower.merger(hidden_PE), tokens, tuple(deepstack))


def _embedded(tower: Any, frame: Tensor) -> Tensor:
    """Return the embeddings of patches. The frames of an image are equal, so their weights are added first."""
    layer = tower.patch_embed.proj
    weight = layer.weight
    exact = torch.promote_types(weight.dtype, torch.float32)
    added_EC = weight.to(exact).sum(2).flatten(1)
    pixels_PC = frame.to(weight.dtype).to(exact).flatten(1)
    bias = None if layer.bias is None else layer.bias.to(exact)
    return functional.linear(pixels_PC, added_EC, bias).to(weight.dtype)


def _block(block: Any, hidden_PE: Tensor, chunks: _Chunks) -> Tensor:
    hidden_PE = hidden_PE + _attention(block.attn, block.norm1(hidden_PE), chunks)
    return hidden_PE + block.mlp(block.norm2(hidden_PE))  # type: ignore[no-any-return]


def _attention(layer: Any, hidden_PE: Tensor, chunks: _Chunks) -> Tensor:
    projected = layer.qkv(hidden_PE)
    if chunks.order_P is not None:
        projected = projected.index_select(0, chunks.order_P)
    query, key, value = projected.view(len(hidden_PE), 3, layer.num_heads, -1).unbind(1)
    query, key = _rotated(query, chunks), _rotated(key, chunks)
    found, start = [], 0
    for count, length in chunks.shapes:
        stop = start + count * length
        q, k, v = (
            each[start:stop].view(count, length, *each.shape[1:]).transpose(1, 2) for each in (query, key, value)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, scale=layer.scaling)
        found.append(attended.transpose(1, 2).reshape(count * length, -1))
        start = stop
    joined_PE = found[0] if len(found) == 1 else torch.cat(found)
    if chunks.back_P is not None:
        joined_PE = joined_PE.index_select(0, chunks.back_P)
    return layer.proj(joined_PE)  # type: ignore[no-any-return]


def _rotated(values_PHF: Tensor, chunks: _Chunks) -> Tensor:
    wide = values_PHF.to(chunks.cos_P1F.dtype)
    first, second = wide.chunk(2, -1)
    cos, sin = chunks.cos_P1F, chunks.sin_P1F
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(values_PHF.dtype)


@dataclass(frozen=True, slots=True)
class _Chunks:
    """The patches that attend to each other, in an order in which chunks of equal length are neighbours."""

    shapes: list[tuple[int, int]]
    """Number of chunks and their length, for each length."""
    order_P: Tensor | None
    """The patches in this order; None if it is the order of the images."""
    back_P: Tensor | None
    """The inverse of the order."""
    cos_P1F: Tensor
    sin_P1F: Tensor
    """The rotary embedding of the patches in this order."""

    @classmethod
    def of(cls, lengths: list[list[int]], order_P: Tensor | None, rotary: tuple[Tensor, Tensor]) -> _Chunks:
        """Sort chunks by length.

        Args:
            lengths: number of patches of each chunk of each image
            order_P: the patches, so that each chunk is a run; None if they are already
            rotary: cosine and sine of the patches in the order of the images
        """
        flat = [length for each in lengths for length in each]
        counts = {length: flat.count(length) for length in sorted(set(flat))}
        if len(counts) > 1:
            lengths_C = torch.tensor(flat)
            by_length = lengths_C.repeat_interleave(lengths_C).argsort(stable=True).to(rotary[0].device)
            order_P = by_length if order_P is None else order_P[by_length]
        cos, sin = rotary if order_P is None else (each.index_select(0, order_P) for each in rotary)
        back_P = None if order_P is None else order_P.argsort()
        return cls([(count, length) for length, count in counts.items()], order_P, back_P, cos, sin)


@dataclass(frozen=True, slots=True)
class _Geometry:
    places_P2: Tensor
    """Row and column of each patch."""
    window_order_P: Tensor
    """The patches window by window."""
    window_lengths: list[int]


@lru_cache(maxsize=256)
def _geometry(rows: int, columns: int, merge: int, window: int) -> _Geometry:
    """Return the places of an image's patches and its windows, each ``window`` visual tokens wide and high."""
    blocks = torch.arange(rows * columns).view(rows // merge, merge, columns // merge, merge)
    patch_P = blocks.transpose(1, 2).flatten()
    row_P, column_P = patch_P // columns, patch_P % columns
    if not window:
        return _Geometry(torch.stack((row_P, column_P), 1), patch_P[:0], [])
    side = window * merge
    across = -(-columns // side)
    window_P = row_P // side * across + column_P // side
    lengths = window_P.bincount()
    return _Geometry(torch.stack((row_P, column_P), 1), window_P.argsort(stable=True), lengths.tolist())


def _joined(orders: list[Tensor]) -> Tensor:
    """Return orders of images as one order of all patches."""
    starts, start = [], 0
    for order in orders:
        starts.append(order + start)
        start += len(order)
    return torch.cat(starts)


def _window(tower: Any) -> int:
    """Return the side of an attention window in visual tokens; 0 if every block attends to whole images."""
    size = getattr(tower, "window_size", 0)
    if not size or set(range(len(tower.blocks))) <= set(tower.fullatt_block_indexes):
        return 0
    return int(size // tower.spatial_merge_size // tower.patch_size)


def _rotary(tower: Any, places_P2: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of the angles of patches [P, 1, F]: half for their rows, half for their columns."""
    frequencies = tower.rotary_pos_emb.inv_freq.float()
    angles_PF = (places_P2[..., None].float() * frequencies).flatten(1)
    dtype = torch.promote_types(tower.patch_embed.proj.weight.dtype, torch.float32)
    return angles_PF.cos().to(dtype)[:, None], angles_PF.sin().to(dtype)[:, None]


def _learned_positions(tower: Any, geometry: list[_Geometry], grids: list[tuple[int, int]]) -> Tensor:
    """Return learned embeddings [P, E] of a square grid, interpolated between its corners (Qwen3-VL)."""
    side = int(tower.pos_embed.num_embeddings**0.5)
    indices, weights = [], []
    for each, (rows, columns) in zip(geometry, grids, strict=True):
        (low, high, up), (left, right, far) = (
            _between(each.places_P2[:, axis], size, side) for axis, size in enumerate((rows, columns))
        )
        indices.append(torch.stack((low * side + left, low * side + right, high * side + left, high * side + right), 1))
        weights.append(torch.stack(((1 - up) * (1 - far), (1 - up) * far, up * (1 - far), up * far), 1))
    table = tower.pos_embed.weight
    corners_P4E = tower.pos_embed(torch.cat(indices).to(table.device))
    return (corners_P4E * torch.cat(weights).to(table.device)[..., None]).sum(1)  # type: ignore[no-any-return]


def _between(place_P: Tensor, size: int, side: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the two neighbours of each place in a table with ``side`` entries, and the share of the second."""
    exact_P = place_P.float() * (side - 1) / max(size - 1, 1)
    low_P = exact_P.floor().long()
    return low_P, (low_P + 1).clamp(max=side - 1), exact_P - low_P
