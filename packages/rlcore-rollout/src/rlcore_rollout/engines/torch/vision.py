"""Images in prompts: their visual features, and the visual tokens among the tokens of a step.

Axes: B sequences of a step, T new tokens of each, K visual tokens, D width of the text model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Series
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from rlcore.errors import DataError, EngineError, UserError
from rlcore_models.positions import rotary_positions
from rlcore_models.vision_encoder import vision_tower, visual_features
from torch import Tensor

from rlcore_rollout.engines.torch.config import CALL_TOKENS

if TYPE_CHECKING:
    from rlcore.images import ImageProcessor
    from rlcore.types import MediaSpan, Prompt

CALL_IMAGES = 16
"""Maximum number of images of equal size that are encoded together in deterministic mode."""
ROW_PAD = 8
"""Fewer rows of a matrix product take other code paths in the underlying libraries."""
KNOWN_IMAGES = 4096
"""Number of images whose size is remembered."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The visual features of one image."""

    features_KD: Tensor
    """The embeddings of its tokens."""
    deepstack: tuple[Tensor, ...]
    """Tensors [K, D] added to their hidden states after the first layers, one for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisualTokens:
    """The visual tokens among the new tokens of a step."""

    places_K: Tensor
    """Indices in the flat [B * T]."""
    features_KD: Tensor
    """Their embeddings."""
    deepstack: tuple[Tensor, ...]
    """Tensors [K, D] added to their hidden states after the first layers, one for each."""


class ImageEncoder:
    """Encodes images with the vision tower of a model.

    In deterministic mode, the bits of an image's features are those that it has alone. Images of equal size are encoded
    together after it was measured, once for each size and number of images, that this does not change them. With oneMKL
    on x86 this holds for images whose number of tokens is a multiple of 8. Others are not tried.
    """

    def __init__(self, module: torch.nn.Module, processor: ImageProcessor, *, deterministic: bool):
        self.module = module
        self._processor = processor
        self._deterministic = deterministic
        self._equal: dict[tuple[int, int, int], bool] = {}
        self._grids: dict[str, tuple[int, int]] = {}
        tower: Any = vision_tower(module)
        expected = (tower.config.patch_size, tower.config.spatial_merge_size, tower.config.temporal_patch_size)
        found = (processor.patch_size, processor.merge_size, processor.temporal_patch_size)
        if found != expected:
            raise UserError(
                f"the model needs an image processor with patch, merge and temporal patch sizes {expected}",
                found=str(found),
                fix="restore preprocessor_config.json of this model",
            )

    def check(self, prompt: Prompt) -> None:
        """Check that the images of a prompt are there and match their spans.

        Raises:
            EngineError: they do not.
        """
        end = 0
        for span in prompt.media:
            name, grid = span.sha256[:12], (span.rows, span.columns)
            if span.offset < end or span.offset + span.length > len(prompt):
                raise EngineError(
                    "the spans of images must be ordered, apart and inside the prompt: found"
                    f" {span.length} tokens from {span.offset} on after {end}, in a prompt of {len(prompt)} tokens"
                )
            if span.length < 1 or span.rows * span.columns != span.length:
                raise EngineError(
                    f"image {name} has {span.length} tokens, but {span.rows} rows x {span.columns} columns"
                )
            end = span.offset + span.length
            if span.sha256 not in prompt.images:
                raise EngineError(f"the prompt has no bytes of its image {name}")
            if (seen := self._grid(span.sha256, prompt.images[span.sha256])) != grid:
                raise EngineError(
                    f"image {name} has {seen[0]} x {seen[1]} visual tokens, but its span has {grid[0]} x {grid[1]}:"
                    " it was not fitted by the image processor of this model"
                )

    def encode(self, images: Mapping[MediaSpan, bytes]) -> dict[str, Encoded | DataError]:
        """Return the features of images by content hash, or why an image cannot be decoded.

        Args:
            images: distinct images; the spans give their sizes
        """
        found: dict[str, Encoded | DataError] = {}
        for spans in self._calls(images):
            encoded = [images[span] for span in spans]
            features = self._as_alone(spans, encoded) if self._deterministic else self._together(spans, encoded)
            found.update((span.sha256, each) for span, each in zip(spans, features, strict=True))
        return found

    def _calls(self, images: Iterable[MediaSpan]) -> Iterator[list[MediaSpan]]:
        """Split images into those that are encoded together; in deterministic mode into 2^n images of equal size."""
        groups: dict[object, list[MediaSpan]] = {}
        for span in images:
            groups.setdefault((span.rows, span.columns) if self._deterministic else None, []).append(span)
        for spans in groups.values():
            while spans:
                sums = accumulate(span.length for span in spans)
                count = max(1, sum(1 for tokens in sums if tokens <= CALL_TOKENS))
                if self._deterministic:
                    count = 1 if spans[0].length % ROW_PAD else 1 << min(count, CALL_IMAGES).bit_length() - 1
                yield spans[:count]
                del spans[:count]

    def _as_alone(self, spans: list[MediaSpan], encoded: list[bytes]) -> list[Encoded | DataError]:
        """Return the features that each of several images of equal size has alone."""
        case = (spans[0].rows, spans[0].columns, len(spans))
        if self._equal.get(case):
            return self._together(spans, encoded)
        alone = [each for span, data in zip(spans, encoded, strict=True) for each in self._together([span], [data])]
        if len(spans) > 1 and case not in self._equal and not any(isinstance(each, DataError) for each in alone):
            together = self._together(spans, encoded)
            self._equal[case] = all(_equal(one, other) for one, other in zip(together, alone, strict=True))
        return alone

    def _together(self, spans: list[MediaSpan], encoded: list[bytes]) -> list[Encoded | DataError]:
        """Encode images in one call, or each in its own if one of them cannot be decoded."""
        try:
            with torch.inference_mode(False), torch.no_grad():  # the tower may keep tensors that training needs later
                found = visual_features(self.module, encoded, self._processor)
        except DataError as error:
            if len(spans) == 1:
                return [error]
            return [each for span, data in zip(spans, encoded, strict=True) for each in self._together([span], [data])]
        lengths = [span.length for span in spans]
        parts = [torch.split(tensor, lengths) for tensor in (found.features_KD, *found.deepstack)]
        return [Encoded(features_KD, tuple(deepstack)) for features_KD, *deepstack in zip(*parts, strict=True)]

    def _grid(self, name: str, data: bytes) -> tuple[int, int]:
        """Return the rows and columns of an image's visual tokens."""
        if name not in self._grids:
            try:
                grid = self._processor.grid(data)
            except DataError as error:
                raise EngineError(f"image {name[:12]} cannot be used: {error}") from error
            if len(self._grids) >= KNOWN_IMAGES:
                del self._grids[next(iter(self._grids))]
            self._grids[name] = grid
        return self._grids[name]


def _equal(one: Encoded | DataError, other: Encoded | DataError) -> bool:
    if isinstance(one, DataError) or isinstance(other, DataError):
        return False
    pairs = zip((one.features_KD, *one.deepstack), (other.features_KD, *other.deepstack), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def visual_tokens(
    pieces: Series[tuple[Prompt, int]], width: int, features: Mapping[str, Encoded], like: Tensor
) -> VisualTokens | None:
    """Return the visual tokens of a step; None if there are none.

    Args:
        pieces: the prompt of each sequence, and the index of its first new token
        width: number of new tokens of each sequence, T, padding included
        features: the features of all images in the new tokens, by content hash
        like: a tensor on the device and of the type of the hidden states
    """
    places: list[Tensor] = []
    found: list[Encoded] = []
    for row, (prompt, start) in enumerate(pieces):
        for span in prompt.media:
            first, last = max(span.offset, start), min(span.offset + span.length, start + width)
            if first >= last:
                continue
            places.append(torch.arange(first, last) + (row * width - start))
            whole, part = features[span.sha256], slice(first - span.offset, last - span.offset)
            found.append(Encoded(whole.features_KD[part], tuple(each[part] for each in whole.deepstack)))
    if not found:
        return None
    return VisualTokens(
        places_K=torch.cat(places).to(like.device),
        features_KD=torch.cat([each.features_KD for each in found]).to(like),
        deepstack=tuple(torch.cat(each).to(like) for each in zip(*(each.deepstack for each in found), strict=True)),
    )


def positions_of(prompt: Prompt) -> Tensor:
    """Return the temporal, vertical and horizontal position of each token of a prompt, int64 [3, tokens]."""
    axes = rotary_positions(len(prompt), prompt.media)
    return torch.stack([torch.frombuffer(axis, dtype=torch.int64) for axis in axes])
