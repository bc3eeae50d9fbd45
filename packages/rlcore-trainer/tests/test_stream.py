"""Groups of a stream: which step trains on them, how old they are, and what a checkpoint has."""

from __future__ import annotations

import json
import queue
import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore.errors import EngineError, UserError
from rlcore.runs.progress import Meter, silent
from rlcore.types import Boundary, Failure, Group, Message, RolloutKey, Task, derive_seed
from rlcore_trainer.algorithms.config import FilterConfig
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.controller.selection import Collected
from rlcore_trainer.controller.stream import Stream
from test_collection import Work, sampled_group

SPLIT, RIGHT, WRONG = (0.0, 1.0), (1.0, 1.0), (0.0, 0.0)
Key = tuple[int, int]
"""Number of the rollout of a group, and its place."""


class Report:
    """Keeps what a stream says."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.stored: list[Group] = []

    def say(self, *lines: str) -> None:
        self.said += lines

    def progress(self, phase: str, total: int, unit: str) -> Meter:
        return Meter(phase, total, unit, silent)

    def group_finished(self, purpose: str, group: Group) -> None:
        self.stored.append(group)


class Sampler:
    """Ends groups in an order by chance."""

    def __init__(self, seed: int, rewards: Sequence[Sequence[float | None]] = (SPLIT,), failures: int = 0) -> None:
        self.version, self.failures, self.recovered = 0, failures, 0
        self.submitted: list[Key] = []
        self._rewards, self._random = rewards, random.Random(seed)
        self._running: list[tuple[Task, Key, int, Future[Group]]] = []
        self.slow: set[Key] = set()
        """Groups that do not end."""
        self.broken: dict[Key, Failure] = {}
        """Groups in which the engine fails."""
        self.deadly: set[Key] = set()
        """Groups with which the engine dies."""
        self.all_at_once = False
        self.stopped = False

    def submit(self, task: Task, key: RolloutKey, *, place: int) -> Future[Group]:
        future: Future[Group] = Future()
        self.submitted.append((key.step, place))
        self._running.append((task, (key.step, place), self.version, future))
        return future

    def stopping(self) -> bool:
        return self.stopped

    def end_groups(self) -> None:
        """End a group, or all of them."""
        while able := [one for one in self._running if one[1] not in self.slow]:
            self._end(self._random.choice(able))
            if not self.all_at_once:
                break

    def _end(self, one: tuple[Task, Key, int, Future[Group]]) -> None:
        task, (number, place), version, future = one
        self._running.remove(one)
        if (self.failures and self._random.random() < 0.3) or (number, place) in self.deadly:
            self.failures -= (number, place) not in self.deadly
            future.set_exception(EngineError("the engine died"))
            return
        rewards = self._rewards[derive_seed(task.id, number, place) % len(self._rewards)]
        group = at_version(sampled_group(task, rewards, number), version, place)
        if failure := self.broken.get((number, place)):
            trajectories = tuple(one.replace(failure=failure, reward=None) for one in group.trajectories)
            group = Group(task=task, trajectories=trajectories)
        future.set_result(group)

    def recover(self, error: EngineError) -> None:
        self.recovered += 1


def at_version(group: Group, version: int, place: int) -> Group:
    """The group as sampled by a version of the policy, with its place among the metrics."""
    trajectories = []
    for one in group.trajectories:
        (segment,) = one.segments
        turns = tuple(replace(turn, policy_version=version) for turn in segment.turns)
        metrics = {**one.metrics, "place": float(place)}
        trajectories.append(one.replace(segments=(replace(segment, turns=turns),), metrics=metrics))
    return Group(task=group.task, trajectories=tuple(trajectories))


def key_of(group: Group) -> Key:
    metrics = group.trajectories[0].metrics
    return int(metrics["number"]), int(metrics["place"])


def version_of(group: Group) -> int:
    return group.trajectories[0].turns[-1].policy_version


def stream(
    *, ahead: int = 1, steps: int = 6, max_age: int = 3, tasks: int = 20, per_step: int = 4, **filter: Any
) -> Stream:
    return Stream(
        [Task(id=str(i), messages=(Message(role="user", content=f"{i}?"),)) for i in range(tasks)],
        ahead=ahead,
        steps=steps,
        report=cast(Any, Report()),
        trainer=PolicyGradientConfig(tasks_per_step=per_step),
        filter=FilterConfig(**filter),
        group_size=2,
        seed=5,
        success=1.0,
        max_age=max_age,
    )


class Waiting(queue.SimpleQueue[Any]):
    """The groups of a stream that have ended. Some end whenever the stream waits for one."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if self.empty():
            self._sampler.end_groups()
        return self.get_nowait()


def trained(of: Stream, sampler: Sampler, steps: Sequence[int]) -> list[Collected]:
    """Collect these steps. Each one is followed by an update of the weights."""
    found = []
    of._ended = Waiting(sampler)
    for step in steps:
        collected = of.collect(step, sampler)
        assert collected is not None
        found.append(collected)
        sampler.version += 1
    return found


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    ahead=st.integers(1, 3),
    max_age=st.integers(0, 4),
    rewards=st.lists(st.sampled_from([SPLIT, RIGHT, WRONG, (1.0, None), (None, None)]), min_size=1, max_size=5),
    filter=st.sampled_from([{}, {"metric": "reward"}, {"metric": "reward", "oversample": 1.5, "rank_by_std": True}]),
    resumed_at=st.none() | st.integers(1, 5),
    failures=st.integers(0, 2),
)
def test_each_submitted_group_has_one_end(
    seed: int,
    ahead: int,
    max_age: int,
    rewards: list[Sequence[float | None]],
    filter: dict[str, Any],
    resumed_at: int | None,
    failures: int,
) -> None:
    options = {"ahead": ahead, "max_age": max_age, **filter}
    before, sampler = stream(**options), Sampler(seed, rewards, failures)
    cut = resumed_at or 6
    steps = trained(before, sampler, range(1, cut + 1))
    of, samplers = before, [sampler]
    if cut < 6:
        of = stream(**options)
        of.restore(json.loads(json.dumps(before.state(cut))))
        again = Sampler(seed + 1, rewards)
        again.version = sampler.version
        samplers.append(again)
        steps += trained(of, again, range(cut + 1, 7))
    ends = [(key_of(group), fate) for one in steps for group, fate in zip(one.sampled, one.fates, strict=True)]
    assert Counter(key for key, _ in ends).most_common(1)[0][1] == 1
    used = [key_of(group) for one in steps for group in one.groups]
    assert len(set(used)) == len(used)
    assert {key for key, fate in ends if fate.kind == "kept"} <= set(used) <= {key for key, _ in ends}
    state = of.state()
    waiting, running = len(state["carried"]), {(one["batch"], one["place"]) for one in state.get("running", ())}
    assert {key for key, _ in ends} | running == {key for one in samplers for key in one.submitted}
    assert not running & {key for key, _ in ends}
    ledger = Counter(state["ledger"])
    submitted = ledger.pop("submitted")
    assert ledger["trained"] == len(used)
    assert submitted == len(ends) + len(running) == ledger.total() + waiting + len(running)
    assert sum(one.metrics["stream/too_old"] for one in steps) == ledger["age"]
    for number, one in enumerate(steps):
        ages = [number - version_of(group) for group in one.groups]
        assert max(ages, default=0) <= max_age or any(not earlier.groups for earlier in steps)  # a skipped step
        assert len(one.groups) == 4 or one.warning is not None


def test_without_a_filter_no_group_is_sampled_in_vain() -> None:
    of, sampler = stream(ahead=2, max_age=9), Sampler(3)
    steps = trained(of, sampler, range(1, 7))
    assert len(sampler.submitted) == 24
    assert [len(one.groups) for one in steps] == [4] * 6
    assert of.summary() == "groups    24 submitted: 24 trained, 0 left"


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_groups_that_end_in_order_are_at_most_as_old_as_sampling_is_ahead(ahead: int) -> None:
    of, sampler = stream(ahead=ahead, steps=9), Sampler(0)
    sampler._random = cast(Any, SimpleNamespace(choice=lambda running: running[0], random=lambda: 1.0))
    steps = trained(of, sampler, range(1, 10))
    assert [int(one.metrics["stream/age_max"]) for one in steps] == [min(step, ahead) for step in range(9)]
    assert [key_of(group) for one in steps for group in one.groups] == sorted(sampler.submitted)


def test_slow_group_is_trained_when_it_ends_or_dropped_if_it_is_too_old() -> None:
    for max_age in (9, 2):
        of, sampler = stream(steps=9, max_age=max_age), Sampler(1)
        sampler.slow = {(1, 0)}
        steps = trained(of, sampler, range(1, 5))
        sampler.slow = set()
        steps += trained(of, sampler, range(5, 10))
        found = [
            (number, fate)
            for number, one in enumerate(steps, start=1)
            for group, fate in zip(one.sampled, one.fates, strict=True)
            if key_of(group) == (1, 0)
        ]
        ((number, fate),) = found
        used = [number for number, one in enumerate(steps, start=1) if (1, 0) in map(key_of, one.groups)]
        assert number >= 5
        assert (fate.why, used) == (("age", []) if max_age == 2 else ("", [number]))


def test_stop_leaves_the_state_before_and_resumes_with_what_was_running() -> None:
    of, sampler = stream(ahead=2), Sampler(4)
    trained(of, sampler, [1, 2])
    state = json.loads(json.dumps(of.state(2)))
    sampler.stopped = True
    assert of.collect(3, sampler) is None
    assert json.loads(json.dumps(of.state(2))) == state
    other, again = stream(ahead=2), Sampler(5)
    other.restore(state)
    again.version = 2
    (step,) = trained(other, again, [3])
    assert [(one["batch"], one["place"]) for one in state["running"]] == again.submitted[: len(state["running"])]
    assert len(step.groups) == 4


def test_data_that_has_changed_is_noted_in_the_ledger() -> None:
    of, sampler = stream(), Sampler(4)
    trained(of, sampler, [1])
    state = of.state(1)
    other = stream(tasks=5)
    other.restore(state)
    again = Sampler(5)
    trained(other, again, [2])
    gone = sum(one["task"] >= 5 for one in state["running"])
    assert other.state(2)["ledger"].get("removed", 0) == gone > 0
    assert f"{gone} of tasks that no longer exist" in str(other.summary())


def test_failed_engine_samples_its_groups_again() -> None:
    of, sampler = stream(), Sampler(2, failures=3)
    steps = trained(of, sampler, range(1, 7))
    assert sampler.failures == 0
    assert 1 <= sampler.recovered <= 3
    repeated = [key for key, count in Counter(sampler.submitted).items() if count > 1]
    assert repeated
    used = [key_of(group) for one in steps for group in one.groups]
    assert len(used) == len(set(used)) == 24
    broken = Sampler(2, failures=10**6)
    broken._random = cast(Any, SimpleNamespace(choice=lambda running: running[0], random=lambda: 0.0))
    with pytest.raises(EngineError, match="died"):
        trained(stream(), broken, [1])
    assert broken.recovered == 1


def test_group_that_fails_in_the_engine_is_sampled_once_more_and_then_not_scored() -> None:
    of, sampler = stream(max_age=9), Sampler(2)
    failed = Failure(boundary=Boundary.ENGINE, message="the image cannot be decoded")
    sampler.broken = {(1, 0): failed}
    steps = trained(of, sampler, range(1, 7))
    assert sampler.submitted.count((1, 0)) == 2
    assert sampler.recovered == 0
    (place,) = [group for one in steps for group in one.groups if key_of(group) == (1, 0)]
    assert all(one.failure is failed for one in place.trajectories)
    assert of.summary() == "groups    24 submitted: 24 trained, 0 left"


def test_group_whose_engine_dies_each_time_is_left_out() -> None:
    of, sampler = stream(), Sampler(5)
    sampler._random = cast(Any, SimpleNamespace(choice=lambda running: running[0], random=lambda: 1.0))
    sampler.deadly = {(1, 0)}
    steps = trained(of, sampler, range(1, 7))
    assert sampler.submitted.count((1, 0)) == 3
    assert (1, 0) not in [key_of(group) for one in steps for group in one.groups]
    assert of.summary() == "groups    25 submitted: 24 trained, 1 dropped (1 failed), 0 left"


class Mixed(Sampler):
    """Only tasks with odd numbers have the reward ``other``."""

    def submit(self, task: Task, key: RolloutKey, *, place: int) -> Future[Group]:
        future, mixed = super().submit(task, key, place=place), Future[Group]()
        future.add_done_callback(lambda done: mixed.set_result(self._rewarded(done.result())))
        return mixed

    def _rewarded(self, group: Group) -> Group:
        other = group.trajectories if int(group.task.id) % 2 else ()
        changed = tuple(one.replace(rewards={"other": one.rewards["good"]}) for one in other)
        return Group(task=group.task, trajectories=changed or group.trajectories)


def test_score_that_only_some_groups_have_ends_no_run() -> None:
    found = trained(stream(metric="reward", score="other", per_step=8), Mixed(3), range(1, 7))
    assert all(int(group.task.id) % 2 for step in found for group in step.groups)
    with pytest.raises(UserError, match="no trajectory has the value 'others'"):
        trained(stream(metric="reward", score="others"), Mixed(3), [1])


def test_ranking_compares_a_full_step_of_new_groups() -> None:
    of, sampler = stream(steps=20, max_age=3, metric="reward", oversample=1.5, rank_by_std=True), Sampler(6)
    steps = trained(of, sampler, range(1, 20))
    assert min(len(one.sampled) for one in steps) >= 6


def test_groups_that_have_ended_are_stored_and_trained_oldest_first() -> None:
    of, sampler = stream(ahead=3, steps=9, max_age=9), Sampler(1)
    sampler.all_at_once = True
    (first,) = trained(of, sampler, [1])
    state = of.state(1)
    assert (len(state["carried"]), len(state.get("running", ()))) == (int(first.metrics["stream/waiting"]), 0)
    steps = trained(of, sampler, range(2, 10))
    assert [int(one.metrics["stream/age_max"]) for one in (first, *steps)] == [0, 1, 2, 3, 3, 3, 3, 3, 3]


def test_run_without_sampling_ahead_samples_again_what_a_stream_has_left() -> None:
    of, sampler = stream(ahead=2), Sampler(4)
    trained(of, sampler, [1, 2])
    state = json.loads(json.dumps(of.state(2)))
    left = {one["id"] for one in state["running"]} | {
        json.loads(one["group"])["task"]["id"] for one in state["carried"]
    }
    work = Work((0.0, 1.0), tasks=20, per_step=4)
    work.collector.restore(state)
    for step in (3, 4):
        work.step(step)
    assert left <= {str(task) for _, tasks in work.asked for task in tasks}
