from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore.types import Group, Message, Task
from rlcore_trainer.batching.filtering import REASONS, Metric, sift, spread, verdict
from token_trajectories import trajectory

METRICS: list[Metric] = ["none", "reward", "accuracy", "all-wrong"]


def group(*rewards: float | None) -> Group:
    task = Task(id="a", messages=(Message(role="user", content="?"),))
    trajectories = (trajectory(task_id="a", sibling=sibling, reward=reward) for sibling, reward in enumerate(rewards))
    return Group(task=task, trajectories=tuple(trajectories))


@pytest.mark.parametrize(
    ("rewards", "none", "reward", "accuracy", "all_wrong"),
    [
        ((0.0, 1.0, 0.0), None, None, None, None),
        ((1.0, 1.0, 1.0), None, "equal", "all_right", None),
        ((0.0, 0.0, 0.0), None, "equal", "all_wrong", "all_wrong"),
        ((0.3, 0.3, 0.3), None, "equal", "all_wrong", "all_wrong"),
        ((1.0, 1.2, 1.1), None, None, "all_right", None),  # all right, and a bonus tells them apart
        ((0.0, 0.2, 0.1), None, None, "all_wrong", "all_wrong"),
        ((1.0, None, 1.0), None, "equal", "all_right", None),
        ((1.0, None, 0.0), None, None, None, None),
        ((1.0, None, None), *["not_scored"] * 4),
        ((None, None, None), *["not_scored"] * 4),
        ((None,), *["not_scored"] * 4),
        ((), *["not_scored"] * 4),
        ((1.0,), None, None, None, None),
        ((0.0,), None, None, None, "all_wrong"),
    ],
)
def test_every_metric_gives_a_reason_for_a_dropped_group(
    rewards: tuple[float | None, ...], none: str, reward: str, accuracy: str, all_wrong: str
) -> None:
    assert [verdict(group(*rewards), metric, 1.0) for metric in METRICS] == [none, reward, accuracy, all_wrong]


def test_trajectory_is_correct_from_the_success_reward() -> None:
    assert verdict(group(0.5, 0.7), "accuracy", 0.5) == "all_right"
    assert verdict(group(0.5, 0.7), "accuracy", 0.7) is None
    assert verdict(group(0.5, 0.7), "accuracy", 0.71) == "all_wrong"
    assert verdict(group(0.5, 0.7), "all-wrong", 0.71) == "all_wrong"


def test_filtering_keeps_group_order_and_counts_dropped_groups() -> None:
    groups = [group(0, 1, None), group(1, 1), group(0, 0), group(1, 0), group(1, 1), group(0, None)]
    kept, reasons = sift(groups, "accuracy", 1.0)
    assert [id(one) for one in kept] == [id(groups[0]), id(groups[3])]
    assert reasons == {"all_right": 2, "all_wrong": 1, "not_scored": 1}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=4), max_size=8),
    st.sampled_from(METRICS),
)
def test_every_group_is_kept_or_dropped_for_one_reason(rewards: list[list[float | None]], metric: Metric) -> None:
    kept, reasons = sift([group(*some) for some in rewards], metric, 0.5)
    assert len(kept) + reasons.total() == len(rewards)
    assert set(reasons) <= set(REASONS)
    assert reasons == Counter(v for some in rewards if (v := verdict(group(*some), metric, 0.5)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=6))
def test_spread_is_the_standard_deviation_of_the_scores(rewards: list[float]) -> None:
    mean = sum(rewards) / len(rewards)
    variance = sum((reward - mean) ** 2 for reward in rewards) / len(rewards)
    assert spread(group(None, *rewards)) == pytest.approx(math.sqrt(variance), abs=1e-9)


def test_equal_rewards_have_exactly_zero_spread() -> None:
    assert spread(group(*[0.1] * 7)) == 0.0
    assert spread(group(None, None)) == 0.0
    assert spread(group(0.7)) == 0.0
