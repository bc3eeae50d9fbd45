"""From losses of tokens to one loss: the weight of each token in it.

Axes: ``N`` the sequences of a global batch.
"""

from __future__ import annotations

from collections.abc import Sequence

AGGREGATIONS = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")


def token_weights(
    trained_tokens_N: Sequence[int],
    aggregation: str,
    *,
    max_response_tokens: int | None = None,
    count_empty: bool = False,
) -> list[float]:
    """The weight of each trained token of N sequences, so that the weighted sum of all tokens is the loss.

    ``token-mean`` weighs all tokens alike (DAPO, arXiv 2503.14476, eq. 8), ``seq-mean-token-mean`` all sequences alike,
    each the mean of its tokens (GRPO, arXiv 2402.03300, eq. 3), ``seq-mean-token-sum`` each the sum of its tokens, and
    ``seq-mean-token-sum-norm`` that sum over a fixed length (Dr. GRPO, arXiv 2503.20783, §3.2).

    Args:
        trained_tokens_N: how many tokens of each sequence are trained
        aggregation: one of the four
        max_response_tokens: the fixed length, which only ``seq-mean-token-sum-norm`` needs
        count_empty: let sequences without a trained token count in the mean over sequences

    Raises:
        ValueError: of an aggregation that is unknown, or that lacks ``max_response_tokens``.
    """
    if aggregation == "token-mean":
        tokens = sum(trained_tokens_N)
        return [1.0 / tokens if count else 0.0 for count in trained_tokens_N]
    sequences = len(trained_tokens_N) if count_empty else sum(count > 0 for count in trained_tokens_N)
    if aggregation == "seq-mean-token-mean":
        return [1.0 / (sequences * count) if count else 0.0 for count in trained_tokens_N]
    if aggregation == "seq-mean-token-sum":
        return [1.0 / sequences if count else 0.0 for count in trained_tokens_N]
    if aggregation == "seq-mean-token-sum-norm":
        if max_response_tokens is None or max_response_tokens < 1:
            raise ValueError(f"{aggregation} needs max_response_tokens of at least 1, found {max_response_tokens}")
        return [1.0 / (sequences * max_response_tokens) if count else 0.0 for count in trained_tokens_N]
    raise ValueError(f"unknown aggregation {aggregation!r}; known: {', '.join(AGGREGATIONS)}")
