"""Numbers of an evaluation, against hand values."""

from __future__ import annotations

from itertools import combinations

import pytest
from rlcore.episodes.evaluation import pass_at_k, summarise, wilson
from rlcore.types import (
    Boundary,
    Failure,
    Group,
    Message,
    RewardResult,
    Segment,
    Stop,
    Task,
    ToolCall,
    Trajectory,
    Turn,
)


def trajectory(reward: float | None, failure: Failure | None = None) -> Trajectory:
    call = ToolCall(name="adder", arguments={})
    written = Message(role="assistant", content="x", tool_calls=(call, call))
    segment = Segment(
        token_ids=(1, 2, 3),  # type: ignore[arg-type]
        loss_mask=(False, True, True),  # type: ignore[arg-type]
        logprobs=(0.0, -1.0, -1.0),  # type: ignore[arg-type]
        turns=(Turn(kind="policy", start=1, end=3, messages=(written,)),),
    )
    return Trajectory(
        task_id="t",
        sibling=0,
        segments=(segment,),
        stop=Stop.CANCELLED if failure else Stop.DONE,
        failure=failure,
        reward=reward,
        rewards={} if reward is None else {"exact": RewardResult(value=reward, components={"format": 1.0})},
    )


def group(*trajectories: Trajectory) -> Group:
    return Group(task=Task(id="t", messages=()), trajectories=trajectories)


def test_unscored_trajectories_are_counted_and_excluded_from_means() -> None:
    failed = trajectory(None, Failure(boundary=Boundary.TIMEOUT, message="too slow"))
    found = summarise([group(trajectory(1.0)), group(trajectory(0.5)), group(failed)])
    assert (found.tasks, found.trajectories, found.scored, found.solved) == (3, 3, 2, 1)
    assert (found.accuracy, found.reward, found.rewards) == (0.5, 0.75, {"exact": 0.75})
    assert found.components == {"exact/format": 1.0}
    assert found.not_scored == 1
    assert found.stops == {"done": 2, "cancelled": 1}
    assert found.failures == {"timeout": 1}
    assert (found.tokens, found.turns, found.tool_calls) == (2.0, 1.0, 2.0)
    assert found.errors == ["timeout: too slow"]


def test_evaluation_without_scores_has_no_accuracy() -> None:
    assert summarise([group(trajectory(None, Failure(boundary=Boundary.ENGINE, message="gone")))]).accuracy is None
    assert summarise([]).interval is None


def test_task_counts_once_for_any_number_of_samples() -> None:
    found = summarise([group(*[trajectory(1.0)] * 4), group(*[trajectory(0.0)] * 4)], success=1.0)
    assert found.accuracy == 0.5
    assert found.interval == wilson(0.5, 2)
    assert found.pass_at_k == {1: 0.5, 2: 0.5, 4: 0.5}


def test_wilson_interval_matches_the_paper() -> None:
    # Newcombe 1998, table I, method 3: 81 of 263 and 0 of 20.
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(1.0, 29) == pytest.approx((0.8830, 1.0), abs=5e-5)


@pytest.mark.parametrize(("total", "solved"), [(5, 0), (5, 2), (5, 5), (6, 1)])
def test_pass_at_k_equals_the_mean_over_all_choices(total: int, solved: int) -> None:
    for k in range(1, total + 1):
        choices = list(combinations([True] * solved + [False] * (total - solved), k))
        assert pass_at_k(total, solved, k) == pytest.approx(sum(map(any, choices)) / len(choices))
