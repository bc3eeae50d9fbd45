"""``max-rl``, ``gdpo`` and ``grpo`` with the deviation of the rollout, against slow loops and at their boundaries."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore.errors import UserError
from rlcore_trainer.algorithms.advantages.gdpo import gdpo
from rlcore_trainer.algorithms.advantages.grpo import EPSILON, grpo
from rlcore_trainer.algorithms.advantages.max_rl import max_rl
from torch import Tensor

pytestmark = pytest.mark.numeric

rows = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from([0.0, 0.5, 1.0]), st.integers(-2, 2)),
    min_size=1,
    max_size=20,
)
few = settings(max_examples=30, deadline=None)


def double(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def normalised(values: list[float]) -> list[float]:
    """By the mean and the deviation of the values; unchanged if there is only one."""
    if len(values) == 1:
        return [values[0] / (1 + EPSILON)]
    mean, spread = statistics.fmean(values), statistics.stdev(values)
    return [0.0 if len(set(values)) == 1 else (value - mean) / (spread + EPSILON) for value in values]


@few
@given(drawn=rows)
def test_max_rl_equals_a_slow_loop(drawn: list[tuple[float, float, int]]) -> None:
    rewards, groups = [reward for reward, _, _ in drawn], [group for _, _, group in drawn]
    expected = []
    for reward, group in zip(rewards, groups, strict=True):
        members = [other for other, label in zip(rewards, groups, strict=True) if label == group]
        mean = statistics.fmean(members)
        expected.append(reward if len(members) == 1 else (reward - mean) / mean if mean else 0.0)
    found, metrics = max_rl(double(rewards), torch.tensor(groups))
    assert found.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert metrics == grpo(double(rewards), torch.tensor(groups))[1]


def test_max_rl_weighs_a_rare_success_by_its_inverse_probability() -> None:
    found, _ = max_rl(double([1, 0, 0, 0, 1, 1, 1, 0]), torch.tensor([0] * 4 + [1] * 4))
    assert found.tolist() == pytest.approx([3, -1, -1, -1, 1 / 3, 1 / 3, 1 / 3, -1])


def test_max_rl_gives_nothing_to_a_group_without_success() -> None:
    found, _ = max_rl(double([0.0, 0.0, 0.1, 0.1]), torch.tensor([0, 0, 1, 1]))
    assert found.tolist() == [0.0] * 4
    with pytest.raises(UserError, match="not negative"):  # a mean near 0 would divide large differences
        max_rl(double([1.0, -1.0, 0.0004, 0.0]), torch.tensor([0] * 4))
    with pytest.raises(ValueError, match="finite"):
        max_rl(double([1.0, math.nan]), torch.tensor([0, 0]))


@few
@given(drawn=rows, weights=st.tuples(st.floats(-2, 2), st.floats(-2, 2)))
def test_gdpo_equals_a_slow_loop(drawn: list[tuple[float, float, int]], weights: tuple[float, float]) -> None:
    groups, sums = [group for _, _, group in drawn], [0.0] * len(drawn)
    for k, weight in enumerate(weights):
        for group in set(groups):
            places = [i for i, label in enumerate(groups) if label == group]
            for i, value in zip(places, normalised([drawn[i][k] for i in places]), strict=True):
                sums[i] += weight * value
    expected = normalised(sums) if len(sums) > 1 else [0.0]
    values_NR = double([row[:2] for row in drawn])
    found, _ = gdpo(values_NR, double(weights).expand_as(values_NR), torch.tensor(groups))
    if max(sums) - min(sums) > 1e-6:  # rounding decides whether smaller ones are equal
        assert found.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_gdpo_tells_combinations_with_the_same_sum_apart() -> None:
    # Format is nearly always right, so that a wrong one is more than a wrong answer.
    answers, formats = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    values_NR, groups_N = double([answers, formats]).T, torch.zeros(6, dtype=torch.long)
    found = gdpo(values_NR, torch.ones_like(values_NR), groups_N)[0].tolist()
    assert found[0] < found[1] < found[3]
    whole = grpo(values_NR.sum(1), groups_N)[0].tolist()
    assert whole[0] == whole[1]


def test_gdpo_of_equal_rewards_is_exactly_zero() -> None:
    values_NR, groups_N = double([[0.1, 0.3]] * 6), torch.tensor([0, 0, 0, 1, 1, 1])
    found, metrics = gdpo(values_NR, torch.ones_like(values_NR), groups_N)
    assert found.tolist() == [0.0] * 6
    assert metrics == {"groups/equal": 1.0}
    values_NR[0, 0] = 0.2  # the other reward and the other group stay without a signal
    found, metrics = gdpo(values_NR, torch.ones_like(values_NR), groups_N)
    assert found[3:].abs().max() < 1e-12 < found[:3].abs().min()
    assert metrics == {"groups/equal": 0.5}


def test_grpo_can_divide_by_the_deviation_of_the_rollout() -> None:
    rewards_N, groups_N = double([1.0, 0.0, 0.9, 1.0, 0.5, 0.5]), torch.tensor([0, 0, 1, 1, 2, 2])
    found, _ = grpo(rewards_N, groups_N, normalise_by_std="batch")
    spread = statistics.stdev(rewards_N.tolist()) + EPSILON
    expected = [0.5 / spread, -0.5 / spread, -0.05 / spread, 0.05 / spread, 0.0, 0.0]
    assert found.tolist() == pytest.approx(expected)
    assert grpo(double([0.7]), torch.tensor([0]), normalise_by_std="batch")[0].tolist() == pytest.approx([0.7])
