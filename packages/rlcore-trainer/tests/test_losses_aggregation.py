"""The weight of a token in the loss of a global batch, and what is taken off rewards for length."""

from __future__ import annotations

import pytest
import torch
from rlcore_trainer.algorithms.losses.aggregation import token_weights
from rlcore_trainer.algorithms.losses.shaping import overlong_penalty

pytestmark = pytest.mark.numeric

COUNTS = [3, 1, 0, 6]
LOSSES = [[1.0, -2.0, 4.0], [0.5], [], [3.0, 1.0, 0.0, -1.0, 2.5, 7.0]]


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def by_definition(aggregation: str, *, count_empty: bool) -> float:
    """The aggregated loss of LOSSES, as its name says it."""
    counted = [losses for losses in LOSSES if losses or count_empty]
    if aggregation == "token-mean":
        return mean([loss for losses in LOSSES for loss in losses])
    if aggregation == "seq-mean-token-mean":
        return mean([mean(losses) if losses else 0.0 for losses in counted])
    sums = mean([sum(losses) for losses in counted])
    return sums / 16 if aggregation == "seq-mean-token-sum-norm" else sums


@pytest.mark.parametrize("count_empty", [False, True])
@pytest.mark.parametrize(
    "aggregation", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]
)
def test_weighted_token_sum_equals_the_named_aggregation(aggregation: str, count_empty: bool) -> None:
    weights = token_weights(COUNTS, aggregation, max_response_tokens=16, count_empty=count_empty)
    found = sum(weight * sum(losses) for weight, losses in zip(weights, LOSSES, strict=True))
    assert found == pytest.approx(by_definition(aggregation, count_empty=count_empty), rel=1e-12)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("token-mean", [0.1, 0.1, 0.0, 0.1]),
        ("seq-mean-token-mean", [1 / 9, 1 / 3, 0.0, 1 / 18]),
        ("seq-mean-token-sum", [1 / 3, 1 / 3, 0.0, 1 / 3]),
        ("seq-mean-token-sum-norm", [1 / 48, 1 / 48, 0.0, 1 / 48]),
    ],
)
def test_sequence_without_trained_tokens_has_no_weight(aggregation: str, expected: list[float]) -> None:
    assert token_weights(COUNTS, aggregation, max_response_tokens=16) == pytest.approx(expected)


@pytest.mark.parametrize("counts", [[], [0, 0]])
@pytest.mark.parametrize("count_empty", [False, True])
@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
def test_batch_without_trained_tokens_has_zero_weights(aggregation: str, count_empty: bool, counts: list[int]) -> None:
    assert token_weights(counts, aggregation, count_empty=count_empty) == [0.0] * len(counts)


@pytest.mark.parametrize("length", [None, 0])
def test_missing_fixed_length_is_named(length: int | None) -> None:
    with pytest.raises(ValueError, match="max_response_tokens"):
        token_weights(COUNTS, "seq-mean-token-sum-norm", max_response_tokens=length)


def test_unknown_aggregation_is_named() -> None:
    with pytest.raises(ValueError, match=r"\'sequence-mean\'.*seq-mean-token-mean"):
        token_weights(COUNTS, "sequence-mean")


def test_overlong_penalty_rises_linearly_up_to_the_limit() -> None:
    lengths = torch.tensor([0, 80, 81, 90, 99, 100, 150])
    found = overlong_penalty(lengths, max_response_tokens=100, buffer=20, penalty=0.5)
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx([0.0, 0.0, 0.025, 0.25, 0.475, 0.5, 0.5])


def test_overlong_penalty_without_a_buffer_is_zero() -> None:
    assert overlong_penalty(torch.tensor([5, 200]), max_response_tokens=100, buffer=0, penalty=1.0).tolist() == [
        0.0,
        0.0,
    ]
