"""Advantages of whole trajectories against slow loops over the papers' formulas."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_trainer.algorithms.advantages.dr_grpo import dr_grpo
from rlcore_trainer.algorithms.advantages.grpo import EPSILON, grpo
from rlcore_trainer.algorithms.advantages.opo import opo
from rlcore_trainer.algorithms.advantages.pass_at_k import pass_at_k
from rlcore_trainer.algorithms.advantages.rloo import rloo
from torch import Tensor

pytestmark = pytest.mark.numeric

Members = list[tuple[float, int]]
"""Reward and length of each trajectory of a group."""

rows = st.lists(st.tuples(st.floats(-5, 5), st.integers(-2, 2), st.integers(0, 9)), min_size=1, max_size=30)


def spread(members: Members) -> float:
    return statistics.stdev(reward for reward, _ in members) + EPSILON


def slow_dr_grpo(i: int, members: Members) -> float:
    return members[i][0] - statistics.fmean(reward for reward, _ in members)


def slow_grpo(i: int, members: Members) -> float:
    return slow_dr_grpo(i, members) / spread(members)


def slow_rloo(i: int, members: Members) -> float:
    return members[i][0] - statistics.fmean(reward for j, (reward, _) in enumerate(members) if j != i)


def slow_opo(i: int, members: Members) -> float:
    tokens = sum(length for _, length in members)
    if not tokens:
        return slow_dr_grpo(i, members)
    return members[i][0] - sum(reward * length for reward, length in members) / tokens


def slow_pass_at_k(i: int, members: Members) -> float:
    others = [reward for j, (reward, _) in enumerate(members) if j != i]
    return max(reward for reward, _ in members) - max(others)


def slow_normalised_pass_at_k(i: int, members: Members) -> float:
    return slow_pass_at_k(i, members) / spread(members)


def normalised(estimator: Callable[..., tuple[Tensor, dict[str, float]]]) -> Callable[..., object]:
    return lambda rewards, groups, lengths: estimator(rewards, groups, normalise_by_std=True)


ESTIMATORS = {
    "grpo": (normalised(grpo), slow_grpo),
    "grpo-without-std": (lambda r, g, lengths: grpo(r, g, normalise_by_std=False), slow_dr_grpo),
    "dr-grpo": (lambda r, g, lengths: dr_grpo(r, g), slow_dr_grpo),
    "rloo": (lambda r, g, lengths: rloo(r, g), slow_rloo),
    "opo": (opo, slow_opo),
    "pass-at-k": (normalised(pass_at_k), slow_normalised_pass_at_k),
    "pass-at-k-without-std": (lambda r, g, lengths: pass_at_k(r, g, normalise_by_std=False), slow_pass_at_k),
}
few = settings(max_examples=30, deadline=None)
each_estimator = pytest.mark.parametrize("name", ESTIMATORS)


def advantages(name: str, rewards: list[float], groups: list[int], lengths: list[int] | None = None) -> list[float]:
    function = ESTIMATORS[name][0]
    lengths_N = torch.tensor([3] * len(rewards) if lengths is None else lengths)
    found, _ = function(torch.tensor(rewards, dtype=torch.float64), torch.tensor(groups), lengths_N)
    return found.tolist()


def slowly(name: str, rewards: list[float], groups: list[int], lengths: list[int]) -> list[float]:
    expected = []
    for index, group in enumerate(groups):
        places = [j for j, other in enumerate(groups) if other == group]
        members = [(rewards[j], lengths[j]) for j in places]
        if len(members) == 1:
            expected.append(rewards[index] / (1 + EPSILON) if name in ("grpo", "pass-at-k") else rewards[index])
        elif len({reward for reward, _ in members}) == 1:
            expected.append(0.0)
        else:
            expected.append(ESTIMATORS[name][1](places.index(index), members))
    return expected


@each_estimator
@few
@given(drawn=rows)
def test_equals_a_slow_loop(name: str, drawn: list[tuple[float, int, int]]) -> None:
    rewards, groups, lengths = map(list, zip(*drawn, strict=True))
    expected = slowly(name, rewards, groups, lengths)
    assert advantages(name, rewards, groups, lengths) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@each_estimator
@few
@given(drawn=rows, randomness=st.randoms())
def test_advantages_follow_the_order_of_trajectories(name: str, drawn: list, randomness) -> None:
    shuffled = list(range(len(drawn)))
    randomness.shuffle(shuffled)
    here = advantages(name, *map(list, zip(*drawn, strict=True)))
    there = advantages(name, *map(list, zip(*[drawn[i] for i in shuffled], strict=True)))
    assert there == pytest.approx([here[i] for i in shuffled], rel=1e-9, abs=1e-9)


@each_estimator
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1e-3, -1e12])
def test_equal_rewards_give_exactly_zero(name: str, reward: float) -> None:
    assert advantages(name, [reward] * 7, [4] * 7, [1, 2, 3, 4, 5, 6, 7]) == [0.0] * 7


@each_estimator
def test_group_of_one_keeps_its_reward(name: str) -> None:
    assert advantages(name, [0.5, 1.0, 0.0], [3, 1, 1])[0] == pytest.approx(0.5, abs=1e-5)


@each_estimator
@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_huge_and_tiny_rewards_stay_finite(name: str, scale: float) -> None:
    found = advantages(name, [scale, 2 * scale, 4 * scale], [0, 0, 0])
    assert all(map(math.isfinite, found))
    assert found[2] > 0 >= found[0]


@each_estimator
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_non_finite_reward_is_rejected(name: str, broken: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        advantages(name, [1.0, broken, 0.0], [0, 0, 1])


@each_estimator
def test_rollout_without_trajectories_is_accepted(name: str) -> None:
    assert advantages(name, [], []) == []


def test_group_with_one_correct_of_two_trajectories() -> None:
    found, metrics = grpo(torch.tensor([1.0, 0.0]), torch.tensor([7, 7]))
    assert found.tolist() == pytest.approx([0.5 / (math.sqrt(0.5) + 1e-6), -0.5 / (math.sqrt(0.5) + 1e-6)])
    assert metrics == {"groups/equal": 0.0}


def test_share_of_equal_groups_counts_groups_with_several_trajectories() -> None:
    rewards_N, groups_N = torch.tensor([1, 1, 1, 1, 0, 1, 5]), torch.tensor([0, 0, 0, 0, 1, 1, 2])
    assert grpo(rewards_N, groups_N)[1] == {"groups/equal": pytest.approx(1 / 3)}
    assert grpo(torch.tensor([]), torch.tensor([], dtype=torch.long))[1] == {"groups/equal": 0.0}


def test_opo_baseline_weights_long_answers_more() -> None:
    found, _ = opo(torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), torch.tensor([30, 10]))
    assert found.tolist() == pytest.approx([0.25, -0.75])


def test_opo_baseline_of_equal_lengths_is_the_mean() -> None:
    rewards_N, groups_N = torch.tensor([0.1, 0.7, 0.3, 1.0]), torch.tensor([0, 0, 0, 1])
    assert torch.allclose(opo(rewards_N, groups_N, torch.full((4,), 9))[0], dr_grpo(rewards_N, groups_N)[0])


def test_pass_at_k_rewards_only_the_lead_of_the_best() -> None:
    rewards_N, groups_N = torch.tensor([0.2, 1.0, 0.7, 1.0, 1.0, 0.0]), torch.tensor([0, 0, 0, 1, 1, 1])
    found, _ = pass_at_k(rewards_N, groups_N, normalise_by_std=False)
    assert found.tolist() == pytest.approx([0.0, 0.3, 0.0, 0.0, 0.0, 0.0])


def test_epsilon_bounds_advantages_of_a_tiny_spread() -> None:
    found, _ = grpo(torch.tensor([0.0, 1e-6], dtype=torch.float64), torch.tensor([0, 0]), epsilon=1.0)
    assert found.tolist() == pytest.approx([-5e-7, 5e-7], rel=1e-5)
