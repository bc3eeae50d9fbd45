"""Token sampling. Each draw uses one number keyed by (seed, position), never a shared random stream.

Axes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import torch
from rlcore.types import Sampling
from torch import Tensor

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
    logprobs_BV = torch.log_softmax(logits_BV, dim=-1)
    temperatures = [1.0 if s is None or s.temperature == 0 else s.temperature for s in samplings]
    allowed_BV, scaled_BV = _allowed(logits_BV, samplings), logprobs_BV
    if allowed_BV is not logits_BV or any(temperature != 1.0 for temperature in temperatures):
        scale_B = torch.tensor([1.0 / t for t in temperatures], dtype=torch.float32, device=logits_BV.device)
        scaled_BV = torch.log_softmax(allowed_BV * scale_B[:, None], dim=-1)
    greedy = [row for row, s in enumerate(samplings) if s is not None and s.temperature == 0]
    cut = [row for row, s in enumerate(samplings) if s is not None and s.temperature > 0 and _is_cut(s)]
    if len(greedy) == len(samplings):
        tokens_B = allowed_BV.argmax(dim=-1)
    else:
        numbers_B = torch.tensor(numbers, dtype=torch.float64, device=logits_BV.device)
        tokens_B = _invert(scaled_BV.exp(), numbers_B)
        if greedy:
            rows = torch.tensor(greedy, device=logits_BV.device)
            tokens_B[rows] = allowed_BV[rows].argmax(dim=-1)
        for row in cut:
            sampling = samplings[row]
            assert sampling is not None
            tokens_B[row] = _draw_cut(scaled_BV[row], sampling, numbers_B[row])
    chosen_B = logprobs_BV.gather(1, tokens_B[:, None])[:, 0]
    return tokens_B.tolist(), chosen_B.tolist()


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
    """Return the first token whose cumulative probability exceeds the number. The sums are float64."""
    cumulative_BV = probabilities_BV.cumsum(dim=-1, dtype=torch.float64)
    reached_B1 = numbers_B[:, None] * cumulative_BV[:, -1:]
    return torch.searchsorted(cumulative_BV, reached_B1, right=True)[:, 0].clamp_(max=probabilities_BV.shape[1] - 1)


def _draw_cut(scaled_V: Tensor, sampling: Sampling, number: Tensor) -> Tensor:
    """Apply top-k, then keep the smallest set of most likely remaining tokens that holds ``top_p`` of their mass."""
    order_V = torch.argsort(scaled_V, descending=True, stable=True)
    if sampling.top_k > 0:
        order_V = order_V[: sampling.top_k]
    probabilities = scaled_V[order_V].double().softmax(dim=-1)
    if sampling.top_p < 1:
        before = probabilities.cumsum(dim=-1) - probabilities
        probabilities = probabilities * (before < sampling.top_p)
    return order_V[_invert(probabilities[None], number[None])[0]]
