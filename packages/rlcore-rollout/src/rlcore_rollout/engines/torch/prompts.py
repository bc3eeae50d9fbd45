"""Shared prompts, computed and stored once, and read once per step for all sequences that continue them.

Axes: B sequences of a step, P prompts, M lanes (places for sequences) of each prompt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from collections.abc import Sequence as Series
from dataclasses import dataclass
from itertools import count

import torch
from rlcore.types import MediaSpan, Prompt, TokenIds
from torch import Tensor

from rlcore_rollout.engines.torch.cache import RowCache, Stretch
from rlcore_rollout.engines.torch.weights import Weights

LANES = 8
"""Maximum number of sequences that share one row. Further sequences use another row with a copy, because every row is
computed as if it had as many sequences as the fullest."""
KEY_PAD = 32
"""The number of positions that attention reads is padded to a multiple of this."""


@dataclass(slots=True, kw_only=True, eq=False)
class SharedPrompt:
    """The computed prompt of a session's first call."""

    tokens: TokenIds
    media: tuple[MediaSpan, ...]
    """The images among these tokens."""
    stretch: Stretch
    """The prompt's keys and values."""
    logits_V: Tensor
    """Logits after the prompt's last token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The prompts that the sequences of a step continue, with one lane per sequence."""

    cache: RowCache
    rows_P: Tensor | None
    """Rows of the cache; None means the first P."""
    positions: int
    """Number of positions that attention reads."""
    mask_N1S: Tensor
    """0 where a position belongs to the prompt, -inf after it, from the shortest prompt's end; N is P * key heads."""
    sequences_PM: Tensor
    """The sequence of the step in each lane; arbitrary for an empty lane."""
    lanes_B: Tensor
    """Index into the flat ``sequences_PM`` of each sequence; arbitrary for a sequence whose result is not used."""

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Return the keys [P, H, E, S] and values [P, H, S, E] of the prompts in one layer."""
        seen, prompts = self.positions, len(self.sequences_PM)
        keys, values = self.cache.keys[index, :, :, :, :seen], self.cache.values[index, :, :, :seen]
        if self.rows_P is None:
            return keys[:prompts], values[:prompts]
        return keys.index_select(0, self.rows_P), values.index_select(0, self.rows_P)


class PromptRows:
    """The rows of prompts that active sequences continue. A row is a working copy that may be replaced at any time."""

    def __init__(self, weights: Weights):
        self._device, self._dtype, self._key_heads = weights.device, weights.dtype, weights.shape.key_heads
        self.cache = RowCache(weights, LANES)
        self._held: dict[int, SharedPrompt] = {}

    def seat(self, prompt: SharedPrompt, taken: Counter[int]) -> int:
        """Return a row for one more sequence with this prompt, given the number of active sequences in each row."""
        for row, held in self._held.items():
            if held is prompt and 0 < taken[row] < LANES:
                return row
        row = self.free(len(prompt.tokens), taken)
        self.cache.put(row, prompt.stretch)
        self._held[row] = prompt
        return row

    def free(self, length: int, taken: Iterable[int]) -> int:
        """Return the first row without active sequences, with room for a new prompt of this length."""
        row = next(row for row in count() if row not in taken)
        self.cache.reserve(length, row + 1)
        self._held.pop(row, None)
        return row

    def keep(self, row: int, prompt: Prompt, logits_V: Tensor) -> SharedPrompt:
        """Return the prompt that has been computed in a row."""
        stretch = self.cache.take(row, 0, len(prompt))
        shared = SharedPrompt(tokens=prompt.token_ids, media=prompt.media, stretch=stretch, logits_V=logits_V)
        self._held[row] = shared
        return shared

    def share(self, seats: Series[int | None], *, pick: bool) -> Shared:
        """Return the prompts of a step's sequences.

        Args:
            seats: row of each sequence's prompt; None for a sequence whose result is not used
            pick: copy the rows that are in use instead of reading all rows up to the last of them
        """
        lanes: defaultdict[int, list[int]] = defaultdict(list)
        for sequence, seat in enumerate(seats):
            if seat is not None:
                lanes[seat].append(sequence)
        rows = sorted(lanes) if pick else list(range(max(lanes) + 1))
        width = max(map(len, lanes.values()))
        lanes_B, sequences_PM = [0] * len(seats), [0] * (len(rows) * width)
        for place, row in enumerate(rows):
            for lane, sequence in enumerate(lanes.get(row, ()), place * width):
                lanes_B[sequence], sequences_PM[lane] = lane, sequence
        lengths = {row: len(self._held[row].tokens) for row in lanes}
        shortest, longest = min(lengths.values()), -(-max(lengths.values()) // KEY_PAD) * KEY_PAD
        device = self._device
        lengths_P = torch.tensor([lengths.get(row, longest) for row in rows], device=device)
        hidden = torch.arange(shortest, longest, device=device) >= lengths_P[:, None, None]
        mask_P1S = torch.where(hidden, float("-inf"), 0.0).to(self._dtype)
        return Shared(
            cache=self.cache,
            rows_P=torch.tensor(rows, device=device) if pick else None,
            positions=longest,
            mask_N1S=mask_P1S.repeat_interleave(self._key_heads, dim=0),
            sequences_PM=torch.tensor(sequences_PM, device=device).view(-1, width),
            lanes_B=torch.tensor(lanes_B, device=device),
        )
