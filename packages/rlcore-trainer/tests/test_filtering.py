from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore.errors import UserError
from rlcore.types import Group, Message, RewardResult, Stop, Task
from rlcore_trainer.batching.filtering import (
    REASONS,
    Metric,
    check_score,
    excluding,
    score_of,
    spread,
    usable,
    verdict,
)
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


def test_reason_of_each_group() -> None:
    groups = [group(0, 1, None), group(1, 1), group(0, 0), group(1, 0), group(1, 1), group(0, None)]
    reasons = [verdict(one, "accuracy", 1.0) for one in groups]
    assert reasons == [None, "all_right", "all_wrong", None, "all_right", "not_scored"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=4), st.sampled_from(METRICS))
def test_every_group_is_kept_or_dropped_for_a_known_reason(rewards: list[float | None], metric: Metric) -> None:
    assert verdict(group(*rewards), metric, 0.5) in (None, *REASONS)


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


def bonus_group(*calls_of_right: int, wrong: int = 0) -> Group:
    """Right answers with these numbers of tool calls, each worth 0.1, and wrong answers."""
    answers = [(1.0, calls) for calls in calls_of_right] + [(0.0, 0)] * wrong
    one = group(*(right + 0.1 * calls * right for right, calls in answers))
    results = (
        RewardResult(value=right + 0.1 * calls * right, components={"accuracy": right, "bonus": 0.1 * calls * right})
        for right, calls in answers
    )
    trajectories = zip(one.trajectories, results, strict=True)
    return Group(task=one.task, trajectories=tuple(t.replace(rewards={"search": result}) for t, result in trajectories))


@pytest.mark.parametrize(
    ("one", "partial", "full"),
    [
        (bonus_group(1, 3), None, "equal"),  # all right: only the bonus differs
        (bonus_group(2, 2), "equal", "equal"),
        (bonus_group(wrong=3), "equal", "equal"),
        (bonus_group(1, wrong=1), None, None),
    ],
)
def test_score_without_the_bonus_also_drops_groups_that_differ_in_the_bonus(
    one: Group, partial: str | None, full: str | None
) -> None:
    assert verdict(one, "reward", 1.0) == partial
    assert verdict(one, "reward", 1.0, "search/accuracy") == full
    expected = None if full is None else "all_right" if one.rewards_G[0] else "all_wrong"
    assert verdict(one, "accuracy", 1.0, "search/accuracy") == expected


def test_score_is_a_reward_a_component_or_the_sum() -> None:
    right = bonus_group(3).trajectories[0]
    assert score_of(right, None) == score_of(right, "search") == pytest.approx(1.3)
    assert score_of(right, "search/bonus") == pytest.approx(0.3)
    assert score_of(right, "search/format") is None
    assert score_of(right.replace(reward=None), "search/bonus") is None


def test_trajectory_without_the_score_is_not_compared() -> None:
    one = bonus_group(1, 2, wrong=1)
    unjudged = one.trajectories[2].replace(rewards={"search": RewardResult(value=0.0)})
    assert verdict(one, "accuracy", 1.0, "search/accuracy") is None
    one = Group(task=one.task, trajectories=(*one.trajectories[:2], unjudged))
    assert verdict(one, "accuracy", 1.0, "search/accuracy") == "all_right"
    check_score([one], "search/accuracy")
    with pytest.raises(UserError, match="search/bonus") as error:
        check_score([one], "search/acuracy")
    assert error.value.where == "algorithm.filter.score"


def test_excluded_trajectories_leave_their_group_whole_and_counted() -> None:
    one = group(1.0, 0.0, 0.0, None)
    stops = (Stop.DONE, Stop.LENGTH, Stop.MAX_TURNS, Stop.LENGTH)
    trajectories = zip(one.trajectories, stops, strict=True)
    one = Group(task=one.task, trajectories=tuple(t.replace(stop=stop) for t, stop in trajectories))
    (left,), counts = excluding([one], ["length"])
    assert left.rewards_G == (1.0, None, 0.0, None)
    assert counts == {"length": 1}
    assert [t.sibling for t in usable([left])[0].trajectories] == [0, 2]
    (left,), counts = excluding([one], ["length", "max_turns"])
    assert verdict(left, "none", 1.0) == "not_scored"
    assert counts == {"length": 1, "max_turns": 1}
    (same,), counts = excluding([one], [])
    assert same is one
    assert not counts
