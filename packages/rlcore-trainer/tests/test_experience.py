from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from rlcore.types import Group, RewardResult, Stop, Trajectory
from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.batching.experience import Experience
from token_trajectories import group, segment
from token_trajectories import trajectory as token_trajectory


def trajectory(written: int, reward: float | None, *, gap: bool = False, **options: Any) -> Trajectory:
    """Two tokens of prompt, then so many written ones, an observation between the first and the second if asked."""
    mask = [False, False, *([True, False] if gap else []), *[True] * (written - gap)]
    return token_trajectory(segment(range(len(mask)), mask), reward=reward, **options)


def experience(groups: Sequence[Group], **options: Any) -> Experience:
    algorithm = AlgorithmConfig(**options.pop("algorithm", {}))
    return Experience.of(groups, algorithm, max_response_tokens=10, key=options.pop("key", (0, 1)), **options)


def test_arrays_contain_the_scored_trajectories() -> None:
    found = experience(
        [
            group(trajectory(1, 0.5), trajectory(3, None), trajectory(2, 1.0, gap=True)),
            group(trajectory(4, float("nan")), trajectory(2, float("inf"))),
            group(trajectory(3, 0.25)),
        ]
    )
    assert found.rewards_N.tolist() == [0.5, 1.0, 0.25]
    assert found.rewards_N.dtype == torch.float64
    assert found.groups_N.tolist() == [0, 0, 2]
    assert found.lengths_N.tolist() == [1, 2, 3]
    assert [sequence.prompt_length for sequence in found.sequences] == [2, 2, 2]
    assert found.sequences[1].loss_mask == (False, False, True, False, True)
    assert found.mask_NT.tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_trajectory_without_scored_siblings_is_omitted() -> None:
    groups = [group(trajectory(1, 0.5), trajectory(1, None)), group(trajectory(1, 1.0))]
    assert experience(groups).rewards_N.tolist() == [1.0]
    assert experience(groups, grouped=False).rewards_N.tolist() == [0.5, 1.0]


def test_score_is_on_the_last_written_token_minus_penalties() -> None:
    found = experience([group(trajectory(1, 2.0), trajectory(3, 5.0, gap=True), trajectory(0, 7.0))])
    assert found.token_rewards().tolist() == [[2, 0, 0], [0, 0, 5], [0, 0, 0]]
    penalties_NT = torch.tensor([[1.0, 0, 0], [0.5, 0.25, 1], [0, 0, 0]], dtype=torch.float64)
    assert found.token_rewards(penalties_NT).tolist() == [[1, 0, 0], [-0.5, -0.25, 4], [0, 0, 0]]
    assert found.rewards_N.tolist() == [2, 5, 7]


def test_numbers_of_tokens_are_padded_with_zeros_in_float64() -> None:
    found = experience([group(trajectory(1, 2.0), trajectory(3, 5.0))])
    padded = found.padded({1: torch.tensor([0.1, 0.2, 0.3]), 0: torch.tensor([1.0])})
    assert padded.dtype == torch.float64
    torch.testing.assert_close(padded.float(), torch.tensor([[1.0, 0, 0], [0.1, 0.2, 0.3]]))
    assert found.padded({}).abs().sum() == 0


def test_long_answer_penalty_matches_the_paper() -> None:
    """DAPO, eq. 13, with a limit of 10 and a buffer of 4."""
    lengths = [5, 6, 7, 9, 10, 12]
    algorithm = {"overlong": {"buffer": 4, "penalty": 2.0}}
    found = experience([group(*(trajectory(length, 1.0) for length in lengths))], algorithm=algorithm)
    assert found.rewards_N.tolist() == [1.0, 1.0, 0.5, -0.5, -1.0, -1.0]
    assert found.metrics["overlong/penalty"] == pytest.approx((0.5 + 1.5 + 2 + 2) / 6)


def test_truncated_trajectories_are_excluded_only_if_configured() -> None:
    groups = [group(trajectory(2, 1.0, stop=Stop.LENGTH), trajectory(2, 0.0), trajectory(0, 0.0))]
    assert experience(groups).trained == [0, 1]
    assert "truncated/masked" not in experience(groups).metrics
    masked = experience(groups, algorithm={"overlong": {"mask_truncated": True}})
    assert masked.trained == [1]
    assert masked.rewards_N.tolist() == [1.0, 0.0, 0.0]
    assert masked.metrics["truncated/masked"] == 1


def test_shuffling_permutes_the_penalised_rewards_by_key() -> None:
    groups = [group(*(trajectory(length, float(length)) for length in range(1, 11)))]
    plain = {"overlong": {"buffer": 4}}
    whole = experience(groups, algorithm=plain).rewards_N.tolist()
    orders = [
        experience(groups, algorithm={**plain, "shuffle_rewards": True}, key=key).rewards_N.tolist()
        for key in ((0, 1), (0, 1), (0, 2))
    ]
    assert orders[0] == orders[1] != orders[2]
    assert all(sorted(order) == sorted(whole) != order for order in orders)


def test_values_of_single_rewards_have_their_weights_and_what_else_is_in_the_sum() -> None:
    weights = {"": {"answer": 1.0, "format": 0.5, "length": 0.0}}

    def scored(written: int, answer: float, format: float) -> Trajectory:
        values = {"answer": answer, "format": format, "length": None}
        rewards = {name: RewardResult(value=value) for name, value in values.items()}
        return trajectory(written, answer + 0.5 * format, rewards=rewards)

    groups = [group(scored(1, 1.0, 0.0), scored(10, 0.1, 0.7), scored(2, 0.0, 1.0))]
    assert experience(groups).reward_values_NR is None
    found = experience(groups, reward_weights=weights)
    assert found.reward_values_NR is not None
    assert found.reward_weights_NR is not None
    assert found.reward_values_NR.tolist() == [[1.0, 0.0, 0.0], [0.1, 0.7, 0.0], [0.0, 1.0, 0.0]]
    assert found.reward_weights_NR.tolist() == [[1.0, 0.5, 1.0]] * 3
    algorithm = {"overlong": {"buffer": 4, "penalty": 2.0}, "shuffle_rewards": True}
    shuffled = experience(groups, reward_weights=weights, algorithm=algorithm)
    assert shuffled.reward_values_NR is not None
    assert sorted(shuffled.reward_values_NR[:, -1].tolist()) == pytest.approx([-2.0, 0.0, 0.0])
    sums_N = (shuffled.reward_values_NR * found.reward_weights_NR).sum(1)
    assert sums_N.tolist() == pytest.approx(shuffled.rewards_N.tolist())


def test_reward_of_another_environment_has_no_weight() -> None:
    made = group(trajectory(1, 2.0, rewards={"b": RewardResult(value=1.0)}), trajectory(1, 0.0))
    groups = [Group(task=replace(made.task, environment="right"), trajectories=made.trajectories)]
    found = experience(groups, reward_weights={"left": {"a": 1.0, "b": 3.0}, "right": {"b": 2.0}})
    assert found.reward_weights_NR is not None
    assert found.reward_weights_NR.tolist() == [[0.0, 2.0, 1.0], [0.0, 0.0, 1.0]]
    unknown = experience(groups, reward_weights={})  # the score is the only reward
    assert unknown.reward_values_NR is not None
    assert unknown.reward_values_NR.tolist() == [[2.0], [0.0]]


def test_group_without_a_baseline_is_omitted_and_counted() -> None:
    groups = [group(trajectory(1, 1.0), trajectory(1, 0.0)), group(trajectory(1, 0.5)), group(trajectory(1, 2.0))]
    found = experience(groups, baselines={(0, ""): 0.75, (2, ""): 0.0}, grouped=False)
    assert found.groups_N.tolist() == [0, 0, 2]
    assert found.baselines_N.tolist() == [0.75, 0.75, 0.0]
    assert found.metrics["baselines/missing"] == 1
    assert all(map(math.isnan, experience(groups).baselines_N.tolist()))


def test_rollout_without_scores_gives_empty_experience() -> None:
    found = experience([group(trajectory(1, None)), *[]])
    assert len(found) == 0
    assert found.mask_NT.shape == (0, 0)
    assert found.trained == []


def segmented() -> Trajectory:
    """Segments with 2, 0 and 3 written tokens."""
    return token_trajectory(
        segment([1, 2, 3, 4], [False, True, False, True]),
        segment([1, 2, 5], [False, False, False]),
        segment([1, 2, 6, 7, 8, 9], [False, False, False, True, True, True]),
        reward=1.0,
    )


def test_segments_of_a_trajectory_share_its_row() -> None:
    found = experience([group(trajectory(1, 0.5), segmented())])
    assert len(found) == 2
    assert found.lengths_N.tolist() == [1, 5]
    assert [sequence.trained for sequence in found.sequences] == [1, 2, 0, 3]
    assert [(part.trajectory, part.written) for part in found.parts] == [
        (0, slice(0, 1)),
        (1, slice(0, 2)),
        (1, slice(2, 2)),
        (1, slice(2, 5)),
    ]
    assert [sequence.shares_any_prefix for sequence in found.sequences] == [False, True, True, True]
    assert found.turns_NT.tolist() == [[0, -1, -1, -1, -1], [0, 1, 2, 2, 2]]
    assert found.sequences_of([0, 1]) == [0, 1, 3]
    assert found.sequences_of([1]) == [1, 3]
    assert found.token_rewards().tolist() == [[0.5, 0, 0, 0, 0], [0, 0, 0, 0, 1.0]]


def test_each_segment_gets_its_slice_of_the_advantages() -> None:
    found = experience([group(trajectory(1, 0.5), segmented())])
    assert [one.advantage for one in found.with_advantages(torch.tensor([2.0, -1.0]))] == [2.0, -1.0, -1.0, -1.0]
    numbers_NT = torch.arange(10.0).view(2, 5)
    rows = [torch.as_tensor(one.advantage).tolist() for one in found.with_advantages(numbers_NT)]
    assert rows == [[0.0], [5.0, 6.0], [], [7.0, 8.0, 9.0]]
    assert torch.equal(found.padded(found.rows(numbers_NT)), (numbers_NT * found.mask_NT).double())
