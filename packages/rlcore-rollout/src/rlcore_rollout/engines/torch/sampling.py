"""Token sampling. Each draw uses one number keyed by (seed, position), never a shared random stream.

Axes: B rows, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy
import torch
from rlcore.types import Sampling
from torch import Tensor
from torch.nn import functional

BLOCK = 128
"""Tokens of a block. The vocabularies of most models are multiples of this."""
LARGEST_SHARE = 1 - 2.0**-40
"""A number that rounds to 1 would select the last token of a block even if its probability is 0."""
_GOLDEN = 0x9E3779B97F4A7C15


def uniforms(seed: int, first: int, count: int) -> list[float]:
    """Return 53-bit numbers in [0, 1) for the absolute positions ``first`` … ``first + count - 1``.

    Uses SplitMix64 (Steele, Lea, Flood 2014) at counter ``position`` of the stream that starts at the mixed seed.
    """
    start = int(_mix(numpy.array([(seed + _GOLDEN) % 2**64], dtype=numpy.uint64))[0])
    counters = numpy.arange(first + 1, first + 1 + count, dtype=numpy.uint64)
    mixed = _mix(numpy.uint64(start) + counters * numpy.uint64(_GOLDEN))
    return [float(number) for number in ((mixed >> numpy.uint64(11)) * 2.0**-53).tolist()]


def _mix(state: numpy.typing.NDArray[numpy.uint64]) -> numpy.typing.NDArray[numpy.uint64]:
    state = (state ^ (state >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return state ^ (state >> numpy.uint64(31))


def draw(
    logits_BV: Tensor, samplings: Sequence[Sampling | None], numbers: Sequence[float]
) -> tuple[list[int], list[float]]:
    """Draw a token for each row and return it with its log-probability at temperature 1.

    Suppressed tokens are not drawn. Log-probabilities are those of the distribution with all tokens.

    Args:
        logits_BV: float32
        samplings: one per row; None for rows whose result is not used
        numbers: one uniform number per row
    """
    # A softmax works row by row, so its bits do not depend on the other rows. An elementwise exponential may.
    whole_BV = torch.softmax(logits_BV, dim=-1)
    best_B, peak_B = logits_BV.amax(-1), whole_BV.amax(-1)
    temperatures = [1.0 if s is None or s.temperature == 0 else s.temperature for s in samplings]
    allowed_BV = scaled_BV = _allowed(logits_BV, samplings)
    probabilities_BV = whole_BV
    if any(temperature != 1.0 for temperature in temperatures):
        scaled_BV = allowed_BV * torch.tensor([1.0 / t for t in temperatures], device=logits_BV.device)[:, None]
    if scaled_BV is not logits_BV:
        probabilities_BV = torch.softmax(scaled_BV, dim=-1)
    greedy = [row for row, s in enumerate(samplings) if s is not None and s.temperature == 0]
    cut = [row for row, s in enumerate(samplings) if s is not None and s.temperature > 0 and _is_cut(s)]
    if len(greedy) == len(samplings):
        tokens_B = allowed_BV.argmax(dim=-1)
    else:
        numbers_B = torch.tensor(numbers, dtype=torch.float64, device=logits_BV.device)
        tokens_B = _invert(probabilities_BV, numbers_B)
        if greedy:
            rows = torch.tensor(greedy, device=logits_BV.device)
            tokens_B[rows] = allowed_BV[rows].argmax(dim=-1)
        for row in cut:
            sampling = samplings[row]
            assert sampling is not None
            tokens_B[row] = _draw_cut(scaled_BV[row], sampling, numbers_B[row])
    below_B = (logits_BV.gather(1, tokens_B[:, None])[:, 0] - best_B).tolist()
    peaks = peak_B.tolist()
    logprobs = [below + math.log(peak) if peak > 0 else math.nan for below, peak in zip(below_B, peaks, strict=True)]
    return tokens_B.tolist(), logprobs


def _allowed(logits_BV: Tensor, samplings: Sequence[Sampling | None]) -> Tensor:
    """Return the logits with -inf for the suppressed tokens of each row; the same tensor if there are none."""
    rows_of: dict[tuple[int, ...], list[int]] = {}
    for row, sampling in enumerate(samplings):
        if sampling is not None and sampling.suppressed_token_ids:
            rows_of.setdefault(sampling.suppressed_token_ids, []).append(row)
    if not rows_of:
        return logits_BV
    allowed_BV = logits_BV.clone()
    for ids, rows in rows_of.items():
        known = [token for token in ids if 0 <= token < logits_BV.shape[1]]
        rows_R, ids_S = (torch.tensor(values, dtype=torch.int64, device=logits_BV.device) for values in (rows, known))
        allowed_BV[rows_R[:, None], ids_S] = float("-inf")
    return allowed_BV


def _is_cut(sampling: Sampling) -> bool:
    return sampling.top_p < 1 or sampling.top_k > 0


def _invert(probabilities_BV: Tensor, numbers_B: Tensor) -> Tensor:
    """Return the first token whose cumulative probability exceeds the number.

    The block of tokens is found first, then the token inside it, so only the sums of blocks and one block of each row
    are accumulated. These sums are float64.
    """
    vocabulary = probabilities_BV.shape[1]
    if vocabulary % BLOCK:
        probabilities_BV = functional.pad(probabilities_BV, (0, -vocabulary % BLOCK))
    blocks_BKN = probabilities_BV.view(len(probabilities_BV), -1, BLOCK)
    block_B, share_B = _search(blocks_BKN.sum(-1), numbers_B)
    inside_BN = blocks_BKN[torch.arange(len(block_B), device=block_B.device), block_B]
    tokens_B = block_B * BLOCK + _search(inside_BN, share_B)[0]
    return tokens_B.clamp_(max=vocabulary - 1)  # probabilities that are not finite lead beyond the end


def _search(weights_BN: Tensor, numbers_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index at which each number falls into its row's cumulative weights, and how far into it, below 1."""
    cumulative_BN = weights_BN.cumsum(dim=-1, dtype=torch.float64)
    reached_B1 = numbers_B[:, None] * cumulative_BN[:, -1:]
    index_B1 = torch.searchsorted(cumulative_BN, reached_B1, right=True).clamp_(max=weights_BN.shape[1] - 1)
    own_B1 = weights_BN.gather(1, index_B1).double()
    share_B1 = 1 - (cumulative_BN.gather(1, index_B1) - reached_B1) / own_B1
    return index_B1[:, 0], share_B1[:, 0].clamp(0, LARGEST_SHARE)


def _draw_cut(scaled_V: Tensor, sampling: Sampling, number: Tensor) -> Tensor:
    """Apply top-k, then keep the smallest set of most likely remaining tokens that holds ``top_p`` of their mass."""
    order_V = torch.argsort(scaled_V, descending=True, stable=True)
    if sampling.top_k > 0:
        order_V = order_V[: sampling.top_k]
    probabilities = scaled_V[order_V].double().softmax(dim=-1)
    if sampling.top_p < 1:
        before = probabilities.cumsum(dim=-1) - probabilities
        probabilities = probabilities * (before < sampling.top_p)
    return order_V[_search(probabilities[None], number[None])[0][0]]
