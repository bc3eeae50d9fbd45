"""Weights that aggregate per-token losses into one loss.

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
    """Return the weight of a trained token of each of N sequences; the weighted sum over all tokens is the loss.

    ``token-mean`` weights all tokens equally (DAPO, arXiv 2503.14476, eq. 8). The other aggregations average over
    sequences: ``seq-mean-token-mean`` uses the mean of each sequence's tokens (GRPO, arXiv 2402.03300, eq. 3),
    ``seq-mean-token-sum`` their sum, and ``seq-mean-token-sum-norm`` their sum divided by a fixed length (Dr. GRPO,
    arXiv 2503.20783, §3.2).

    Args:
        trained_tokens_N: number of trained tokens of each sequence
        aggregation: one of ``AGGREGATIONS``
        max_response_tokens: the fixed length; required only by ``seq-mean-token-sum-norm``
        count_empty: include sequences without a trained token in the mean over sequences

    Raises:
        ValueError: the aggregation is unknown, or it requires ``max_response_tokens`` of at least 1.
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
