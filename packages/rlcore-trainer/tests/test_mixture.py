"""Mixtures of environments and curricula: which tasks a step draws, and that a resumed run draws the same."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore.config.schema import EnvironmentTable
from rlcore.errors import DataError
from rlcore.types import Group, Message, RewardResult, RolloutRequest, Task, Trajectory
from rlcore_trainer.algorithms.config import FilterConfig
from rlcore_trainer.batching.mixture import apportion
from rlcore_trainer.config import CurriculumConfig, PolicyGradientConfig
from rlcore_trainer.controller.collection import Collector
from rlcore_trainer.controller.rollout_metrics import evaluation_metrics, rollout_metrics
from rlcore_trainer.controller.selection import Collected
from rlcore_trainer.metrics import direction_of, metric_of, misspelt

Rewards = Callable[[Task, int], Sequence[float]]


class Source:
    """Scores the trajectories of each request, and remembers the requests."""

    def __init__(self, rewards: Rewards) -> None:
        self.requests: list[RolloutRequest] = []
        self._rewards = rewards

    def collect(self, request: RolloutRequest) -> list[Group]:
        self.requests.append(request)
        return [
            Group(
                task=task,
                trajectories=tuple(
                    Trajectory(task_id=task.id, sibling=n, reward=value)
                    for n, value in enumerate(self._rewards(task, request.step))
                ),
            )
            for task in request.tasks
        ]


def tasks_of(name: str, count: int) -> list[Task]:
    return [
        Task(id=str(n), messages=(Message(role="user", content=f"{name} {n}"),), environment=name) for n in range(count)
    ]


def collector(
    tables: Sequence[EnvironmentTable] = (), counts: Sequence[int] = (30,), per_step: int = 4, **keywords: Any
) -> Collector:
    names = [table.name for table in tables] or [""]
    return Collector(
        [task for name, count in zip(names, counts, strict=True) for task in tasks_of(name, count)],
        trainer=PolicyGradientConfig(tasks_per_step=per_step),
        filter=FilterConfig(**keywords.pop("filter", {})),
        group_size=2,
        seed=3,
        success=1.0,
        environments=tables,
        **keywords,
    )


def table(name: str, weight: Any = 1.0) -> EnvironmentTable:
    return EnvironmentTable(id=name, name=name, weight=weight)


def half(task: Task, step: int) -> Sequence[float]:
    return (0.0, 1.0)


def run(made: Collector, steps: Sequence[int], rewards: Rewards = half) -> list[Collected]:
    source = Source(rewards)
    found = [made.collect(step, source.collect) for step in steps]
    return [one for one in found if one is not None]


WEIGHTS = st.lists(st.floats(0.0, 9.0).map(lambda x: 0.0 if x < 0.01 else x), min_size=1, max_size=6).filter(any)


@given(WEIGHTS, st.integers(1, 40), st.integers(1, 60))
@settings(max_examples=150)
def test_counts_follow_the_weights_exactly(weights: list[float], per_step: int, steps: int) -> None:
    owed, sums = [0.0] * len(weights), [0] * len(weights)
    for step in range(1, steps + 1):
        counts, owed = apportion(weights, owed, per_step, [10**6] * len(weights))
        assert sum(counts) == per_step
        sums = [total + count for total, count in zip(sums, counts, strict=True)]
        for weight, total in zip(weights, sums, strict=True):
            assert abs(total - per_step * step * weight / math.fsum(weights)) < 1.5
            assert weight or not total


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 12)), min_size=2, max_size=4), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_small_environments_are_never_drawn_beyond_their_tasks(parts: list[tuple[int, int]], per_step: int) -> None:
    weights, limits = [float(weight) for weight, _ in parts], [limit for _, limit in parts]
    owed = [0.0] * len(parts)
    if sum(limits) < per_step:
        with pytest.raises(DataError):
            apportion(weights, owed, per_step, limits)
        return
    for _ in range(50):
        counts, owed = apportion(weights, owed, per_step, limits)
        assert sum(counts) == per_step
        assert all(0 <= count <= limit for count, limit in zip(counts, limits, strict=True))
        assert all(abs(debt) <= per_step for debt in owed)


def test_groups_are_whole_and_each_step_has_its_share() -> None:
    tables = [table("easy", 3.0), table("hard")]
    made = collector(tables, (30, 9), per_step=8)
    drawn: Counter[tuple[str, str]] = Counter()
    for collected in run(made, range(1, 13)):
        assert Counter(group.task.environment for group in collected.groups) == {"easy": 6, "hard": 2}
        assert (collected.metrics["mixture/easy"], collected.metrics["mixture/hard"]) == (6, 2)
        assert all(len(group.trajectories) == 2 for group in collected.groups)
        assert len({group.task.key for group in collected.groups}) == 8
        drawn.update((group.task.environment, group.task.id) for group in collected.groups)
    # Each environment is drawn in passes of its own: 72 of 30 tasks, and 24 of 9.
    assert {count for (name, _), count in drawn.items() if name == "easy"} == {2, 3}
    assert {count for (name, _), count in drawn.items() if name == "hard"} == {2, 3}


def test_schedule_moves_the_share_from_one_environment_to_the_other() -> None:
    made = collector([table("easy", [(1, 1.0), (9, 0.0)]), table("hard", [(1, 0.0), (9, 1.0)])], (30, 30), per_step=8)
    counts = [int(collected.metrics["mixture/easy"]) for collected in run(made, range(1, 13))]
    assert counts == [8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("filter", [{}, {"metric": "accuracy", "oversample": 1.5}])
@pytest.mark.parametrize("curriculum", [None, CurriculumConfig(success=(0.2, 0.8))])
@pytest.mark.parametrize("weights", [(), (3.0, 1.3, [(0, 1.0), (8, 0.0)])])
def test_resumed_collector_draws_what_an_uninterrupted_one_draws(
    weights: Sequence[Any], curriculum: CurriculumConfig | None, filter: dict[str, Any]
) -> None:
    def rewards(task: Task, step: int) -> Sequence[float]:
        return [(0.0, 1.0), (1.0, 1.0), (0.0, 0.0)][(int(task.id) + step) % 3]

    tables = [table(f"e{n}", weight) for n, weight in enumerate(weights)]
    counts = (30, 12, 8)[: len(tables)] or (30,)
    keywords: dict[str, Any] = {"filter": filter, "curriculum": curriculum}
    whole = run(collector(tables, counts, **keywords), range(1, 15), rewards)
    first = collector(tables, counts, **keywords)
    resumed = collector(tables, counts, **keywords)
    found = run(first, range(1, 8), rewards)
    resumed.restore(json.loads(json.dumps(first.state(7))))
    found += run(resumed, range(8, 15), rewards)
    assert [[group.task.key for group in one.sampled] for one in found] == [
        [group.task.key for group in one.sampled] for one in whole
    ]
    assert [one.metrics for one in found] == [one.metrics for one in whole]


def test_changed_number_of_tasks_starts_a_new_pass_of_that_environment_only() -> None:
    tables = [table("a"), table("b")]
    before = collector(tables, (12, 12))
    run(before, range(1, 3))
    after = collector(tables, (12, 13))
    after.restore(before.state())
    state = after.state()["drawn"]
    assert (state["a"]["epoch"], state["a"]["position"]) == (0, 4)
    assert (state["b"]["epoch"], state["b"]["position"]) == (1, 0)


# The curriculum


def test_prompts_outside_the_band_rest_for_the_next_passes() -> None:
    def rewards(task: Task, step: int) -> Sequence[float]:
        return (1.0, 1.0) if int(task.id) < 6 else (0.0, 1.0)

    made = collector(counts=(12,), per_step=6, curriculum=CurriculumConfig(success=(0.1, 0.9), rest=2))
    drawn = [sorted(int(group.task.id) for group in one.groups) for one in run(made, range(1, 8), rewards)]
    assert sorted(drawn[0] + drawn[1]) == list(range(12))  # the first pass measures every prompt
    assert drawn[2] == drawn[3] == list(range(6, 12))  # two passes without the solved ones
    assert sorted(drawn[4] + drawn[5]) == list(range(12))  # and all of them again


def test_without_prompts_inside_the_band_all_are_sampled_again() -> None:
    made = collector(counts=(8,), per_step=4, curriculum=CurriculumConfig(success=(0.5, 0.5), rest=1000))
    found = run(made, range(1, 5), lambda task, step: (1.0, 1.0))
    assert [int(one.metrics["curriculum/resting"]) for one in found] == [4, 8, 4, 8]
    assert Counter(group.task.id for one in found for group in one.groups) == {str(n): 2 for n in range(8)}


def test_group_without_scores_does_not_change_what_rests() -> None:
    def rewards(task: Task, step: int) -> Sequence[Any]:
        return (None, None)

    made = collector(counts=(8,), curriculum=CurriculumConfig(success=(0.1, 0.9)))
    (collected,) = run(made, [1], rewards)
    assert collected.metrics["curriculum/resting"] == 0


# Metrics


def test_metrics_are_given_in_total_and_by_environment() -> None:
    groups = Source(lambda task, step: (1.0, 1.0) if task.environment == "a" else (0.0, 1.0)).collect(
        RolloutRequest(tasks=[*tasks_of("a", 3), *tasks_of("b", 1)], group_size=2, seed=0, step=1)
    )
    found = rollout_metrics(groups, success=1.0)
    assert found["reward/mean"] == 0.875
    assert (found["environment/a/reward/mean"], found["environment/b/reward/mean"]) == (1.0, 0.5)
    assert found["environment/b/not_scored"] == 0
    found = evaluation_metrics(groups, success=1.0)
    assert (found["evaluation/accuracy"], found["evaluation/a/accuracy"], found["evaluation/b/accuracy"]) == (
        0.875,
        1.0,
        0.5,
    )


def test_metrics_of_several_environments_are_documented() -> None:
    tables = [table("a"), table("b")]
    (collected,) = run(collector(tables, (9, 9), curriculum=CurriculumConfig(success=(0.1, 0.9))), [1])
    logged = {**collected.metrics, **evaluation_metrics(collected.groups, success=1.0)}
    logged |= rollout_metrics(collected.groups, success=1.0)
    assert [name for name in logged if metric_of(name) is None] == []
    assert direction_of("evaluation/a/not_scored") == "min"
    assert misspelt("evaluation/a/accuracy") is None  # it can decide the best checkpoint


def test_metrics_of_a_single_environment_are_not_repeated() -> None:
    groups = Source(half).collect(RolloutRequest(tasks=tasks_of("", 2), group_size=2, seed=0, step=1))
    assert not [name for name in rollout_metrics(groups, success=1.0) if name.startswith("environment/")]
    assert set(evaluation_metrics(groups, success=1.0)) == {
        "evaluation/accuracy",
        "evaluation/reward",
        "evaluation/not_scored",
    }


def test_evaluation_has_each_of_several_rewards() -> None:
    (group,) = Source(half).collect(RolloutRequest(tasks=tasks_of("", 1), group_size=2, seed=0, step=1))
    rewards = {"good": RewardResult(value=0.5), "metric": RewardResult(value=2.0)}
    several = Group(task=group.task, trajectories=tuple(one.replace(rewards=rewards) for one in group.trajectories))
    found = evaluation_metrics([several], success=1.0)
    assert found["evaluation/reward/metric"] == 2.0
    assert direction_of("evaluation/reward/metric") == "max"
