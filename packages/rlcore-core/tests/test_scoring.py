from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from rlcore.episodes.calls import CallFailed, call
from rlcore.episodes.context import EpisodeContext
from rlcore.episodes.evaluation import summarise
from rlcore.episodes.rewards import SelectedReward
from rlcore.episodes.scoring import Scorer, checked
from rlcore.testing import make_trajectory
from rlcore.types import Boundary, Failure, Group, RewardResult, Stop, Task, Trajectory

TASK = Task(id="t", messages=())
BROKEN = Failure(boundary=Boundary.ENVIRONMENT, message="the phone is gone")


def reward(
    function: Any, weight: float = 1.0, id: str = "r", scope: Any = "trajectory", **bounds: float
) -> SelectedReward:
    limits = {"minimum": 0.0, "maximum": 1.0, **bounds}
    return SelectedReward(id=id, weight=weight, scope=scope, function=function, **limits)


def score(
    *rewards: SelectedReward, trajectories: Sequence[Trajectory] | None = None, timeout_s: float = 5.0
) -> tuple[Trajectory, ...]:
    async def run() -> tuple[Trajectory, ...]:
        scorer = Scorer(rewards, timeout_s=timeout_s)
        judged = [await scorer.score(one, TASK) for one in trajectories or [make_trajectory("4")]]
        return (await scorer.settle(Group(task=TASK, trajectories=tuple(judged)))).trajectories

    return asyncio.run(run())


@pytest.mark.parametrize("value", [0, 1, True, 0.5, Fraction(1, 2), RewardResult(value=1), RewardResult(value=0.25)])
def test_number_and_result_are_valid_answers(value: Any) -> None:
    (trajectory,) = score(reward(lambda trajectory, task: value))
    expected = value.value if isinstance(value, RewardResult) else value
    assert trajectory.reward == float(expected)
    assert isinstance(trajectory.reward, float)
    assert isinstance(trajectory.rewards["r"].value, float)
    assert trajectory.failure is None


def test_reward_is_the_weighted_sum_of_all_reward_forms() -> None:
    async def judge(trajectory: Trajectory, task: Task) -> float:
        await asyncio.sleep(0)
        return 0.5

    class Callable_:
        async def __call__(self, trajectory: Trajectory, task: Task) -> RewardResult:
            return RewardResult(value=1.0, components={"part": 0.3})

    rewards = [
        reward(lambda trajectory, task: 1.0, weight=2.0, id="a"),
        reward(judge, weight=-1.0, id="b"),
        reward(Callable_(), weight=0.0, id="metric"),
    ]
    (trajectory,) = score(*rewards)
    assert trajectory.reward == 1.5
    assert trajectory.rewards["metric"].value == 1.0
    assert trajectory.rewards["metric"].components == {"part": 0.3}


def raises(trajectory: Trajectory, task: Task) -> float:
    raise ConnectionError("the judge is away")


async def hangs(trajectory: Trajectory, task: Task) -> float:
    await asyncio.sleep(30)
    return 1.0


def hangs_in_a_thread(trajectory: Trajectory, task: Task) -> float:
    threading.Event().wait(2.0)
    return 1.0


FAILURES: list[tuple[Callable[..., Any], str]] = [
    (raises, "ConnectionError: the judge is away"),
    (hangs, "within 1 s"),
    (hangs_in_a_thread, "within 1 s"),
    (lambda trajectory, task: float("nan"), "nan"),
    (lambda trajectory, task: float("inf"), "inf"),
    (lambda trajectory, task: 1.5, "outside [0, 1]"),
    (lambda trajectory, task: -0.1, "outside [0, 1]"),
    (lambda trajectory, task: 10**400, "outside [0, 1]"),
    (lambda trajectory, task: "1.0", "a str, not a number"),
    (lambda trajectory, task: None, "neither a value nor an error"),
    (lambda trajectory, task: RewardResult(value=None, error="unsure"), "unsure"),
]


@pytest.mark.parametrize(("function", "sentence"), FAILURES)
def test_failed_reward_is_not_scored(function: Any, sentence: str) -> None:
    (trajectory,) = score(reward(lambda trajectory, task: 1.0, id="fine"), reward(function), timeout_s=1.0)
    assert trajectory.reward is None
    assert trajectory.stop is Stop.DONE
    assert trajectory.failure is not None
    assert trajectory.failure.boundary is Boundary.REWARD
    assert sentence in trajectory.failure.message
    assert trajectory.rewards["r"].value is None
    assert trajectory.rewards["fine"].value == 1.0


@pytest.mark.parametrize(("function", "sentence"), FAILURES)
def test_failing_metric_does_not_change_the_reward(function: Any, sentence: str) -> None:
    metric = reward(function, weight=0.0, id="metric")
    (trajectory,) = score(reward(lambda trajectory, task: 1.0), metric, timeout_s=1.0)
    assert trajectory.reward == 1.0
    assert trajectory.failure is None
    assert sentence in (trajectory.rewards["metric"].error or "")


def test_a_sum_too_large_for_a_number_is_not_scored() -> None:
    large = [reward(lambda trajectory, task: 1.0, weight=1.5e308, id=id) for id in ("a", "b")]
    (trajectory,) = score(*large)
    assert trajectory.reward is None
    assert trajectory.failure is not None
    assert trajectory.failure.boundary is Boundary.REWARD


def test_bounds_are_those_of_the_reward() -> None:
    (trajectory,) = score(reward(lambda trajectory, task: -3.0, minimum=-5.0, maximum=0.0))
    assert trajectory.reward == -3.0


def test_failed_trajectory_is_not_scored() -> None:
    asked: list[Trajectory] = []

    def ask(trajectory: Trajectory, task: Task) -> float:
        asked.append(trajectory)
        return 1.0

    broken = make_trajectory("4", stop=Stop.CANCELLED, failure=BROKEN)
    cut = make_trajectory("4", stop=Stop.LENGTH)
    interrupted = make_trajectory("4", stop=Stop.CANCELLED)
    first, second, third = score(reward(ask), trajectories=[broken, cut, interrupted])
    assert (first.reward, first.failure, first.rewards) == (None, BROKEN, {})
    assert (second.reward, second.stop) == (1.0, Stop.LENGTH)
    assert (third.reward, third.failure) == (None, None)
    assert asked == [cut]


def test_group_reward_receives_all_siblings_with_their_results() -> None:
    def rank(group: Group) -> list[float]:
        assert [t.rewards.get("own", RewardResult(value=None)).value for t in group.trajectories] == [0.5, None, 0.5]
        return [0.0, 0.5, 1.0]

    trajectories = [
        make_trajectory("a", sibling=0),
        make_trajectory("b", sibling=1, failure=BROKEN),
        make_trajectory("c", sibling=2),
    ]
    own = reward(lambda trajectory, task: 0.5, id="own")
    scored = score(own, reward(rank, scope="group", id="rank"), trajectories=trajectories)
    assert [one.reward for one in scored] == [0.5, None, 1.5]
    assert scored[1].failure == BROKEN


@pytest.mark.parametrize("answers", [[1.0], [1.0, 1.0, 1.0], None, 1.0])
def test_group_reward_with_a_wrong_number_of_values_is_a_failure(answers: Any) -> None:
    pair = [make_trajectory("a"), make_trajectory("b")]
    scored = score(reward(lambda group: answers, scope="group"), trajectories=pair)
    assert [one.failure.boundary for one in scored if one.failure] == [Boundary.REWARD] * 2
    assert all(one.reward is None for one in scored)


def test_reward_receives_the_context_of_the_episode() -> None:
    seen: list[EpisodeContext] = []

    def reads(trajectory: Trajectory, task: Task, *, context: EpisodeContext) -> float:
        seen.append(context)
        return float((context.scratch / "answer").read_text())

    async def run() -> Trajectory:
        with closing(EpisodeContext(TASK)) as context:
            (context.scratch / "answer").write_text("0.5")
            scorer = Scorer([reward(reads)], timeout_s=5.0)
            return await scorer.score(make_trajectory("4"), TASK, context)

    assert asyncio.run(run()).rewards["r"].value == 0.5
    assert len(seen) == 1


def test_reward_without_an_episode_receives_a_new_context() -> None:
    folders: list[Path] = []

    class Judge:
        async def __call__(self, trajectory: Trajectory, task: Task, context: EpisodeContext) -> float:
            assert (context.task, context.sibling) == (task, 3)
            folders.append(context.scratch)
            return 1.0

    def compare(group: Group, context: EpisodeContext) -> list[float]:
        folders.append(context.scratch)
        return [1.0]

    own = [reward(Judge(), id="own"), reward(compare, scope="group", id="compare")]
    (trajectory,) = score(*own, trajectories=[make_trajectory("4", sibling=3)])
    assert trajectory.reward == 2.0
    assert len(set(folders)) == 2
    assert not any(folder.exists() for folder in folders)


def test_reward_can_be_selected_twice() -> None:
    (trajectory,) = score(reward(lambda trajectory, task: 0.5), reward(lambda trajectory, task: 1.0))
    assert trajectory.reward == 1.5
    assert {name: verdict.value for name, verdict in trajectory.rewards.items()} == {"r": 0.5, "r#2": 1.0}


def test_slow_plain_rewards_run_concurrently() -> None:
    together = threading.Barrier(8)

    def slow(trajectory: Trajectory, task: Task) -> float:
        together.wait(timeout=30)  # one that waits alone raises
        return 1.0

    async def run() -> list[Any]:
        scorer = Scorer([reward(slow)], timeout_s=60.0)
        return await asyncio.gather(*(scorer.score(make_trajectory("4"), TASK) for _ in range(32)))

    verdicts = [verdict for judged in asyncio.run(run()) for verdict in judged.rewards.values()]
    assert [verdict.value for verdict in verdicts] == [1.0] * 32


def test_function_with_a_wrong_signature_is_named_with_its_line() -> None:
    def narrow(trajectory: Trajectory) -> float:
        return 1.0

    async def ask() -> str:
        try:
            await call("it", narrow, 1, 2, timeout_s=5, threaded=True)
        except CallFailed as failure:
            return str(failure)
        return ""

    assert asyncio.run(ask()).endswith(f"(test_scoring.py:{narrow.__code__.co_firstlineno})")


def test_kinds_of_errors_are_kept_and_counted() -> None:
    def out(trajectory: Trajectory, task: Task) -> RewardResult:
        return RewardResult(value=None, error="no answer", error_kind="rate limit")

    async def slow(trajectory: Trajectory, task: Task) -> float:
        await asyncio.sleep(60)
        return 1.0

    rewards = [
        SelectedReward(id=name, weight=0.0, scope="trajectory", function=function, minimum=0.0, maximum=1.0)
        for name, function in (("judge", out), ("slow", slow))
    ]
    scorer = Scorer(rewards, timeout_s=0.05)
    task = Task(id="t", messages=())
    scored = asyncio.run(scorer.score(make_trajectory("x"), task))
    assert {name: result.error_kind for name, result in scored.rewards.items()} == {
        "judge": "rate limit",
        "slow": "time-out",
    }
    counts = summarise([Group(task=task, trajectories=(scored, scored))]).reward_errors
    assert counts == {"judge/rate limit": 2, "slow/time-out": 2}


@pytest.mark.parametrize("kind", [7, None, "a/b", "x" * 41, "line\nbreak"])
def test_kind_of_an_error_is_a_short_name(kind: Any) -> None:
    result = checked(RewardResult(value=None, error="no", error_kind=kind), 0.0, 1.0)
    assert (result.value, result.error_kind) == (None, "")
    assert "error_kind" in (result.error or "")


class Remote:
    """A reward that asks a service, which takes its time."""

    reward_timeout_s = 30.0
    refusal = None

    def __init__(self) -> None:
        self.closed = 0

    async def __call__(self, trajectory: Trajectory, task: Task) -> float:
        await asyncio.sleep(0.2)
        return 1.0

    async def close(self) -> None:
        self.closed += 1


def test_remote_reward_limits_its_own_time_and_is_closed() -> None:
    function = Remote()
    reward = SelectedReward(id="r", weight=1.0, scope="trajectory", function=function, minimum=0.0, maximum=1.0)
    assert (reward.timeout_s, reward.refusal) == (30.0, None)

    async def go() -> Trajectory:
        scored = await Scorer([reward], timeout_s=0.05).score(make_trajectory("x"), Task(id="t", messages=()))
        await reward.close()
        return scored

    assert asyncio.run(go()).rewards["r"].value == 1.0
    assert function.closed == 1
