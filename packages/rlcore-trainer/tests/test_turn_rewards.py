"""Rewards of turns, from trajectories through to advantages."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlcore.types import Group, Segment, Trajectory, Turn
from rlcore_trainer.algorithms.advantages.gae import gae
from rlcore_trainer.algorithms.advantages.grpo import grpo
from rlcore_trainer.algorithms.advantages.grpo_turn import grpo_turn
from rlcore_trainer.algorithms.advantages.reinforce_plus_plus import reinforce_plus_plus
from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.batching.experience import Experience
from token_trajectories import group, segment, trajectory


def turns(*rewards: float | None, length: int = 2) -> Segment:
    """Two tokens of prompt, then turns of so many written tokens with an observation of one between them."""
    mask = [False, *([False, *[True] * length] * len(rewards))]
    return segment(range(len(mask)), mask, rewards=rewards)


def experience(groups: Sequence[Group], turn_rewards: str, **options: Any) -> Experience:
    algorithm = AlgorithmConfig(turn_rewards=turn_rewards, **options)
    return Experience.of(groups, algorithm, max_response_tokens=10, key=(0, 1))


GROUPS = [group(trajectory(turns(0.5, None, 2.0), reward=1.0), trajectory(turns(-1.0), turns(3.0), reward=0.25))]


def test_turn_rewards_are_assigned_to_the_last_token_of_their_turn() -> None:
    added, only, none = (experience(GROUPS, form) for form in ("add", "only", "none"))
    assert added.token_rewards().tolist() == [[0, 0.5, 0, 0, 0, 3.0], [0, -1.0, 0, 3.25, 0, 0]]
    assert only.token_rewards().tolist() == [[0, 0.5, 0, 0, 0, 2.0], [0, -1.0, 0, 3.0, 0, 0]]
    assert none.token_rewards().tolist() == [[0, 0, 0, 0, 0, 1.0], [0, 0, 0, 0.25, 0, 0]]
    assert [found.rewards_N.tolist() for found in (added, only, none)] == [[3.5, 2.25], [2.5, 2.0], [1.0, 0.25]]
    assert added.turns_NT.tolist() == [[0, 0, 1, 1, 2, 2], [0, 0, 1, 1, -1, -1]]


def test_penalties_are_subtracted_with_turn_rewards() -> None:
    found = experience(GROUPS, "only", overlong={"buffer": 10, "penalty": 1.0})
    assert found.rewards_N.tolist() == pytest.approx([2.5 - 0.6, 2.0 - 0.4])
    penalties_NT = torch.full((2, 6), 0.125, dtype=torch.float64)
    rewards_NT = found.token_rewards(penalties_NT)
    assert rewards_NT[0].tolist() == pytest.approx([-0.125, 0.375, -0.125, -0.125, -0.125, 2.0 - 0.6 - 0.125])


def test_reward_of_a_turn_without_tokens_goes_to_the_previous_token() -> None:
    whole = turns(1.0, 2.0)
    ids, mask = whole.token_ids, whole.loss_mask
    end = Turn(kind="policy", start=len(ids), end=len(ids), messages=(), reward=4.0)
    made = segment(ids, mask, turns=(*whole.turns, end))
    assert experience([group(trajectory(made))], "only").token_rewards().tolist() == [[0, 1.0, 0, 6.0]]
    start = Turn(kind="policy", start=1, end=1, messages=(), reward=8.0)
    made = segment(ids, mask, turns=(start, *whole.turns))
    assert experience([group(trajectory(made))], "only").token_rewards().tolist() == [[8.0, 1.0, 0, 2.0]]


def test_unscored_trajectory_with_turn_rewards_is_not_trained_on() -> None:
    groups = [group(trajectory(turns(1.0), reward=None), trajectory(turns(1.0)), trajectory(turns(2.0)))]
    assert experience(groups, "only").rewards_N.tolist() == [1.0, 2.0]
    infinite = [group(trajectory(turns(math.inf)), trajectory(turns(1.0)), trajectory(turns(2.0)))]
    assert experience(infinite, "add").rewards_N.tolist() == [1.0, 2.0]
    assert len(experience(infinite, "none")) == 3


def test_shuffling_keeps_turn_rewards_with_their_trajectory() -> None:
    groups = [group(*(trajectory(turns(float(i), 0.5), reward=10.0 * i) for i in range(6)))]
    plain, shuffled = (experience(groups, "add", shuffle_rewards=shuffle) for shuffle in (False, True))
    order = [plain.rewards_N.tolist().index(reward) for reward in shuffled.rewards_N.tolist()]
    assert sorted(order) == list(range(6)) != order
    assert torch.equal(shuffled.token_rewards(), plain.token_rewards()[order])


def test_gae_with_turn_rewards_equals_a_hand_computation() -> None:
    """Two turns of one token each, γ = 0.5, λ = 0.5."""
    groups = [group(trajectory(turns(1.0, 2.0, length=1), reward=4.0))]
    values_NT = torch.tensor([[0.5, 1.0]], dtype=torch.float64)
    for form, (first, last) in {"add": (1.0, 6.0), "only": (1.0, 2.0), "none": (0.0, 4.0)}.items():
        found = experience(groups, form)
        rewards_NT = found.token_rewards()
        assert rewards_NT.tolist() == [[first, last]]
        delta_1 = last - 1.0
        delta_0 = first + 0.5 * 1.0 - 0.5
        expected = [delta_0 + 0.25 * delta_1, delta_1]
        advantages_NT, _ = gae(rewards_NT, values_NT, found.mask_NT, gamma=0.5, gae_lambda=0.5, whiten=False)
        assert advantages_NT.tolist() == [pytest.approx(expected)]


def test_return_of_a_token_includes_only_later_turns() -> None:
    found = experience(GROUPS, "only")
    returns_NT, _ = reinforce_plus_plus(found.token_rewards(), found.mask_NT, whiten=False)
    assert returns_NT.tolist() == [[2.5, 2.5, 2.0, 2.0, 2.0, 2.0], [2.0, 2.0, 3.0, 3.0, 0, 0]]


def of_turns(found: Experience, **options: Any) -> torch.Tensor:
    advantages_NT, _ = grpo_turn(found.token_rewards(), found.groups_N, found.turns_NT, found.mask_NT, **options)
    return advantages_NT


def test_grpo_by_turn_equals_a_hand_computation() -> None:
    """Rewards 1, 0 and 2, of two turns and of one: mean 1, standard deviation 1."""
    groups = [group(trajectory(turns(1.0, 0.0)), trajectory(turns(2.0)))]
    found = of_turns(experience(groups, "only"), epsilon=0.0)
    assert found.tolist() == [[-1, -1, -1, -1], [1, 1, 0, 0]]
    found = of_turns(experience(groups, "only"), normalise_by_std=False)
    assert found.tolist() == [[-1, -1, -1, -1], [1, 1, 0, 0]]
    groups = [group(trajectory(turns(3.0, 0.0)), trajectory(turns(0.0, 3.0)))]
    assert of_turns(experience(groups, "only"), normalise_by_std=False).tolist() == [
        [0, 0, -1.5, -1.5],
        [0, 0, 1.5, 1.5],
    ]


def rollout(seed: int, *, most_turns: int = 4) -> list[Group]:
    rng = random.Random(seed)

    def member() -> Trajectory:
        counts = [rng.randint(1, most_turns) for _ in range(rng.randint(1, 3) if most_turns > 1 else 1)]
        segments = [
            turns(*(rng.choice([None, rng.gauss(0, 1), 1.0]) for _ in range(count)), length=rng.randint(1, 3))
            for count in counts
        ]
        return trajectory(*segments, reward=rng.choice([0.0, 1.0]))

    return [group(*(member() for _ in range(rng.randint(2, 4)))) for _ in range(3)]


@given(st.integers(0, 500), st.booleans())
def test_grpo_by_turn_equals_a_slow_loop(seed: int, normalise: bool) -> None:
    groups = rollout(seed)
    found = of_turns(experience(groups, "only"), normalise_by_std=normalise)
    row = 0
    for each in groups:
        policy = [[turn for turn in one.turns if turn.kind == "policy"] for one in each.trajectories]
        rewards = torch.tensor([turn.reward or 0.0 for mine in policy for turn in mine], dtype=torch.float64)
        mean, std = rewards.mean(), rewards.std() if normalise else 1.0
        equal = bool((rewards == rewards[0]).all())
        for mine in policy:
            expected = []
            for k, turn in enumerate(mine):
                later = [((later.reward or 0.0) - mean) / (std + 1e-6 * normalise) for later in mine[k:]]
                expected += [0.0 if equal else float(sum(later))] * (turn.end - turn.start)
            torch.testing.assert_close(found[row, : len(expected)], torch.tensor(expected, dtype=torch.float64))
            assert not found[row, len(expected) :].any()
            row += 1


@pytest.mark.parametrize("normalise", [True, False])
def test_grpo_by_turn_equals_grpo_for_single_turns(normalise: bool) -> None:
    found = experience(rollout(3, most_turns=1), "add")
    expected, metrics = grpo(found.rewards_N, found.groups_N, normalise_by_std=normalise)
    torch.testing.assert_close(of_turns(found, normalise_by_std=normalise), expected[:, None] * found.mask_NT)
    rewards_NT = found.token_rewards()
    assert grpo_turn(rewards_NT, found.groups_N, found.turns_NT, found.mask_NT)[1] == metrics


def test_grpo_by_turn_of_a_single_trajectory_is_its_return() -> None:
    found = of_turns(experience([group(trajectory(turns(1.0, 2.0)))], "only"))
    assert found.tolist() == [[3, 3, 2, 2]]


def test_grpo_by_turn_accepts_a_rollout_without_tokens() -> None:
    found = experience([group(trajectory(turns()), trajectory(turns()))], "only")
    assert of_turns(found).shape == (2, 0)
