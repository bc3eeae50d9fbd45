"""The images of a packed row: each distinct image once, and where its visual tokens are.

Axes: ``K`` the visual tokens of the row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from rlcore.errors import DataError
from rlcore.types import MediaSpan
from torch import Tensor

from rlcore_trainer.batching.sequence import TrainingSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedImages:
    """The images that a packed row refers to."""

    encoded: tuple[bytes, ...]
    """The distinct images, encoded and fitted."""
    grids: tuple[tuple[int, int], ...]
    """Rows and columns of visual tokens of each image."""
    places_K: Tensor
    """Row position of each visual token, ascending. An image that occurs several times has several runs."""
    sources_K: Tensor
    """Its index among the visual tokens of ``encoded``, one image after the other."""


class ImagePlaces:
    """Collects the images of a row while its stretches are packed."""

    def __init__(self) -> None:
        self._encoded: list[bytes] = []
        self._grids: list[tuple[int, int]] = []
        self._first: dict[tuple[str, int, int], int] = {}
        """Index of the first visual token of each image."""
        self._tokens = 0
        self._places: list[Tensor] = []
        self._sources: list[Tensor] = []

    def add(self, sequence: TrainingSequence, stretch: range, row: int) -> None:
        """Add the images in a stretch of a sequence that begins at position ``row`` of the packed row.

        Raises:
            DataError: the bytes of an image are missing, or its grid does not match its span.
        """
        for span in sequence.media:
            part = range(max(span.offset, stretch.start), min(span.offset + span.length, stretch.stop))
            if not span.rows or not len(part):
                continue
            first = self._index(sequence, span)
            self._places.append(torch.arange(part.start, part.stop) + (row - stretch.start))
            self._sources.append(torch.arange(part.start, part.stop) + (first - span.offset))

    def _index(self, sequence: TrainingSequence, span: MediaSpan) -> int:
        key = (span.sha256, span.rows, span.columns)
        if key not in self._first:
            data = sequence.images.get(span.sha256)
            if data is None or span.rows * span.columns != span.length:
                raise DataError(
                    "training needs the bytes of every image in a sequence, and one token for each place of its grid",
                    found=f"a span of {span.length} tokens with {span.rows} x {span.columns} places"
                    + (", whose image is missing" if data is None else ""),
                    where=f"the image {span.sha256[:12]}",
                )
            self._first[key] = self._tokens
            self._encoded.append(data)
            self._grids.append((span.rows, span.columns))
            self._tokens += span.length
        return self._first[key]

    def packed(self, device: torch.device) -> PackedImages | None:
        """Return the images; None if there are none."""
        if not self._encoded:
            return None
        return PackedImages(
            encoded=tuple(self._encoded),
            grids=tuple(self._grids),
            places_K=torch.cat(self._places).to(device),
            sources_K=torch.cat(self._sources).to(device),
        )
