from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlcore_trainer.advantages import EPSILON, grpo

pairs = st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 4)), min_size=1, max_size=30)


def slow_grpo(rewards: list[float], groups: list[int], normalise: bool) -> list[float]:
    advantages = []
    for reward, group in zip(rewards, groups, strict=True):
        members = [r for r, g in zip(rewards, groups, strict=True) if g == group]
        if len(members) == 1:
            advantages.append(reward / (1 + EPSILON) if normalise else reward)
        elif len(set(members)) == 1:
            advantages.append(0.0)
        else:
            centred = reward - statistics.fmean(members)
            advantages.append(centred / (statistics.stdev(members) + EPSILON) if normalise else centred)
    return advantages


@given(pairs, st.booleans())
def test_grpo_equals_a_slow_loop(rows: list[tuple[float, int]], normalise: bool) -> None:
    rewards, groups = [r for r, _ in rows], [g for _, g in rows]
    found, _ = grpo(torch.tensor(rewards, dtype=torch.float64), torch.tensor(groups), normalise_by_std=normalise)
    assert found.tolist() == pytest.approx(slow_grpo(rewards, groups, normalise), rel=1e-6, abs=1e-6)


def test_two_of_which_one_is_right() -> None:
    advantages, metrics = grpo(torch.tensor([1.0, 0.0]), torch.tensor([7, 7]))
    assert advantages.tolist() == pytest.approx([0.5 / (math.sqrt(0.5) + 1e-6), -0.5 / (math.sqrt(0.5) + 1e-6)])
    assert metrics == {"groups/equal": 0.0}


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1e-3])
def test_equal_rewards_give_exactly_zero(reward: float) -> None:
    advantages, metrics = grpo(torch.full((7,), reward), torch.zeros(7, dtype=torch.long))
    assert advantages.tolist() == [0.0] * 7
    assert metrics == {"groups/equal": 1.0}


def test_a_group_of_one_keeps_its_reward() -> None:
    advantages, _ = grpo(torch.tensor([0.5, 1.0, 0.0]), torch.tensor([3, 1, 1]))
    assert advantages[0] == pytest.approx(0.5, abs=1e-5)


def test_no_trajectory_at_all() -> None:
    advantages, metrics = grpo(torch.tensor([]), torch.tensor([], dtype=torch.long))
    assert advantages.tolist() == []
    assert metrics == {"groups/equal": 0.0}
