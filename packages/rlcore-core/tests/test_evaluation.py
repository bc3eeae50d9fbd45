"""Numbers of an evaluation, against hand values."""

from __future__ import annotations

from itertools import combinations

import pytest
from rlcore.evaluation import pass_at_k, summarise, wilson
from rlcore.types import EndReason, Group, Message, RewardResult, Task, ToolCall, Trajectory, Turn


def trajectory(reward: float | None, end: EndReason = EndReason.DONE, error: str | None = None) -> Trajectory:
    call = ToolCall(name="adder", arguments={})
    written = Message(role="assistant", content="x", tool_calls=(call, call))
    return Trajectory(
        task_id="t",
        sibling=0,
        token_ids=(1, 2, 3),
        loss_mask=(False, True, True),
        logprobs=(0.0, -1.0, -1.0),
        turns=(Turn(kind="policy", start=1, end=3, messages=(written,)),),
        end_reason=end,
        error=error,
        reward=reward,
        rewards={} if reward is None else {"exact": RewardResult(value=reward, components={"format": 1.0})},
    )


def group(*trajectories: Trajectory) -> Group:
    return Group(task=Task(id="t", messages=()), trajectories=trajectories)


def test_what_is_not_scored_is_counted_and_in_no_mean() -> None:
    failed = trajectory(None, EndReason.TIMEOUT, "too slow")
    found = summarise([group(trajectory(1.0)), group(trajectory(0.5)), group(failed)])
    assert (found.tasks, found.trajectories, found.scored, found.solved) == (3, 3, 2, 1)
    assert (found.accuracy, found.reward, found.rewards) == (0.5, 0.75, {"exact": 0.75})
    assert found.components == {"exact/format": 1.0}
    assert found.not_scored == {"timeout": 1}
    assert found.end_reasons == {"done": 2, "timeout": 1}
    assert (found.tokens, found.turns, found.tool_calls) == (2.0, 1.0, 2.0)
    assert found.errors == ["too slow"]


def test_nothing_scored_is_no_accuracy_and_nothing_at_all_is_no_error() -> None:
    assert summarise([group(trajectory(None, EndReason.ENGINE_ERROR))]).accuracy is None
    assert summarise([]).interval is None


def test_a_task_counts_once_however_many_samples_it_has() -> None:
    found = summarise([group(*[trajectory(1.0)] * 4), group(*[trajectory(0.0)] * 4)], success=1.0)
    assert found.accuracy == 0.5
    assert found.interval == wilson(0.5, 2)
    assert found.pass_at_k == {1: 0.5, 2: 0.5, 4: 0.5}


def test_wilson_is_the_published_interval() -> None:
    # Newcombe 1998, table I, method 3: 81 of 263 and 0 of 20.
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(1.0, 29) == pytest.approx((0.8830, 1.0), abs=5e-5)


@pytest.mark.parametrize(("total", "solved"), [(5, 0), (5, 2), (5, 5), (6, 1)])
def test_pass_at_k_is_the_mean_over_all_choices(total: int, solved: int) -> None:
    for k in range(1, total + 1):
        choices = list(combinations([True] * solved + [False] * (total - solved), k))
        assert pass_at_k(total, solved, k) == pytest.approx(sum(map(any, choices)) / len(choices))
