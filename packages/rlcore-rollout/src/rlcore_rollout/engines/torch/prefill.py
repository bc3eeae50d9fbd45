"""Computes the new tokens of calls: whole prompts, or what follows the computed tokens of a session.

Axes: B sequences of a step, T new tokens of each, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from rlcore.types import MediaSpan
from torch import Tensor
from torch.nn import functional

from rlcore_rollout.engines.torch.cache import RowCache
from rlcore_rollout.engines.torch.config import BATCH_TOKENS
from rlcore_rollout.engines.torch.decoder import Decoder
from rlcore_rollout.engines.torch.prompts import PromptRows
from rlcore_rollout.engines.torch.sequences import Sequence
from rlcore_rollout.engines.torch.vision import Encoded, positions_of, visual_tokens

TOKEN_PAD = 8
"""New tokens of a prompt are padded to a multiple of this and computed together with others of that length."""
CHUNK = 64
"""A longer prompt is computed in chunks of this many tokens, which may split the tokens of an image. Prompts that begin
with the same chunks, such as a system prompt with the descriptions of tools, share their computation. A chunk is
computed alike for every prompt, so sharing does not change its bits."""

Piece = tuple[Sequence, int]
"""A sequence, and how many positions of its prompt are computed."""
Features = Mapping[str, Encoded]
"""Visual features by the content hash of their image."""


class Prefill:
    """Computes prompts into the rows of the caches."""

    def __init__(self, decoder: Decoder, cache: RowCache, prompt_rows: PromptRows):
        self._decoder = decoder
        self._weights = decoder.weights
        self._cache = cache
        self._prompt_rows = prompt_rows

    def __call__(self, pieces: list[Piece], features: Features) -> list[tuple[Sequence, Tensor]]:
        """Return each sequence with the logits [V] after its prompt.

        The shapes in which a sequence is computed depend only on the sequence itself.

        Args:
            pieces: the sequences, each with its first position to compute; either all are first calls or none is
            features: the features of all images that are not computed
        """
        done: list[tuple[Sequence, Tensor]] = []
        positions = {
            sequence: positions_of(sequence.prompt) for sequence, start in pieces if self._sees(sequence, start)
        }
        while pieces:
            by_width: dict[int, list[Piece]] = {}
            followers = _followers(pieces)
            for sequence, start in pieces:
                if sequence not in followers:
                    new = min(len(sequence.prompt) - start, CHUNK)
                    by_width.setdefault(-(-new // TOKEN_PAD) * TOKEN_PAD, []).append((sequence, start))
            pieces = []
            for width, members in sorted(by_width.items()):
                size = max(1, BATCH_TOKENS // width)
                for first in range(0, len(members), size):
                    batch = members[first : first + size]
                    logits_BV = self._extend(batch, width, positions, features)
                    for (sequence, start), logits_V in zip(batch, logits_BV, strict=False):
                        end = start + CHUNK
                        if end < len(sequence.prompt):
                            pieces.append((sequence, end))
                        else:
                            done.append((sequence, logits_V))
            for follower, (leader, start) in followers.items():
                assert follower.seat is not None
                assert leader.seat is not None
                cache, end = self._prompt_rows.cache, start + CHUNK
                cache.put(follower.seat, cache.take(leader.seat, start, end), start)
                pieces.append((follower, end))
        return done

    def _sees(self, sequence: Sequence, start: int) -> bool:
        """Return whether there are visual tokens from a position on."""
        media = sequence.prompt.media
        return self._weights.axes_F is not None and any(span.offset + span.length > start for span in media)

    def _extend(
        self, batch: list[Piece], width: int, positions: Mapping[Sequence, Tensor], features: Features
    ) -> Tensor:
        """Return the logits [B, V] after the next tokens. ``positions`` has the prompts with new images."""
        news = [sequence.prompt.token_ids[start : start + min(width, CHUNK)] for sequence, start in batch]
        starts = [start - sequence.shared_length for sequence, start in batch]
        seats = [sequence.seat for sequence, _ in batch if sequence.seat is not None]
        if batch[0][0].shared is None:
            cache, rows, shared = self._prompt_rows.cache, seats, None
        else:
            cache, rows = self._cache, [sequence.row for sequence, _ in batch]
            shared = self._prompt_rows.share(seats, pick=True)
        longest = max(starts) + width - 1
        cache.reserve(longest + 1)
        rotary, visual = _rotary(batch, width, positions), None
        if rotary.ndim == 3:
            prompts = [(sequence.prompt, start) for sequence, start in batch]
            visual = visual_tokens(prompts, width, features, self._weights.embedding)
        return self._decoder.extend(
            self._integers([[*new, *[0] * (width - len(new))] for new in news]),
            self._integers(starts),
            rotary.to(self._weights.device),
            self._integers(rows),
            self._integers([len(new) - 1 for new in news]),
            longest,
            cache,
            shared,
            visual,
        )

    def _integers(self, values: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._weights.device)


def _followers(pieces: list[Piece]) -> dict[Sequence, Piece]:
    """Return the first calls whose next chunk another one computes, with that one."""
    leaders: dict[tuple[bytes, tuple[MediaSpan, ...]], Piece] = {}
    followers: dict[Sequence, Piece] = {}
    for sequence, start in pieces:
        prompt, end = sequence.prompt, start + CHUNK
        if sequence.shared is None and end < len(prompt):
            media = tuple(span for span in prompt.media if span.offset < end)
            leader = leaders.setdefault((prompt.token_ids[:end].tobytes(), media), (sequence, start))
            if leader[0] is not sequence:
                followers[sequence] = leader
    return followers


def _rotary(batch: list[Piece], width: int, positions: Mapping[Sequence, Tensor]) -> Tensor:
    """Return rotary positions [B, T]; [3, B, T] if a sequence has new images."""
    text_BT = torch.tensor([[start + sequence.shift] for sequence, start in batch]) + torch.arange(width)
    if not any(sequence in positions for sequence, _ in batch):
        return text_BT
    rotary_3BT = text_BT.repeat(3, 1, 1)
    for row, (sequence, start) in enumerate(batch):
        if sequence in positions:
            new_3T = positions[sequence][:, start : start + width]
            rotary_3BT[:, row] = functional.pad(new_3T, (0, width - new_3T.shape[1]))
    return rotary_3BT
