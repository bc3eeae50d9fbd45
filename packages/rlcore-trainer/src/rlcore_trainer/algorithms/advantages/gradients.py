"""The squared norm of the gradient of a token's log-probability, from log-probabilities alone.

Axes: ``T`` the tokens of a sequence.
"""

from __future__ import annotations

from torch import Tensor


def gradient_norms(logprobs_T: Tensor, sharpened_logprobs_T: Tensor) -> Tensor:
    """Return ``1 − 2π + Σ_v π_v²``, the squared norm of the gradient of ``log π`` by the logits.

    At half the temperature, the probability of a token is ``π² / Σ_v π_v²``, which gives the sum over the vocabulary.

    Args:
        logprobs_T: log-probabilities in nats
        sharpened_logprobs_T: log-probabilities of the same tokens at half the temperature
    """
    squares_T = (2 * logprobs_T - sharpened_logprobs_T).exp()
    return (1 - 2 * logprobs_T.exp() + squares_T).clamp(min=0.0)  # rounding can make it negative
