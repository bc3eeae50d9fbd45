from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore.errors import DataError, UserError
from rlcore.types import (
    Group,
    Message,
    RewardResult,
    RolloutRequest,
    Stop,
    Task,
    Trajectory,
    Turn,
    derive_seed,
)
from rlcore_trainer.algorithms.config import FilterConfig
from rlcore_trainer.batching.data_order import Cursor, draw
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.controller.collection import Collector
from rlcore_trainer.controller.selection import MAX_AGE, Collected
from token_trajectories import segment
from token_trajectories import trajectory as token_trajectory

Rewards = Callable[[int, int, int], Sequence[float | None]]
"""The rewards of a group, from the task's index, the number of the rollout and the group size."""

SPLIT, RIGHT, WRONG = (0.0, 1.0), (1.0, 1.0), (0.0, 0.0)


def sampled_group(task: Task, rewards: Sequence[float | None], number: int) -> Group:
    def trajectory(sibling: int, reward: float | None) -> Trajectory:
        logprob = -derive_seed(task.id, number, sibling) / 2**63  # digits to the last bit
        turns = (
            Turn(kind="observation", start=0, end=1, messages=task.messages),
            Turn(kind="policy", start=1, end=3, messages=(Message(role="assistant", content="é\ud800"),)),
        )
        return token_trajectory(
            segment([7, 8, 9], [False, True, True], logprobs=[0.0, logprob, logprob / 3], turns=turns),
            task_id=task.id,
            sibling=sibling,
            rewards={"good": RewardResult(value=reward, components={"part": logprob})},
            reward=reward,
            metrics={"number": float(number)},
            stop=Stop.LENGTH if reward is not None and reward < 0 else Stop.DONE,
        )

    return Group(task=task, trajectories=tuple(trajectory(i, reward) for i, reward in enumerate(rewards)))


def number_of(group: Group) -> int:
    """The rollout in which a group was sampled."""
    return int(group.trajectories[0].metrics["number"])


class Work:
    """A collector, what it asked for, and what it said."""

    def __init__(
        self,
        rewards: Rewards | Sequence[float | None],
        tasks: int = 40,
        per_step: int = 4,
        stops_at: int | None = None,
        shuffle: bool = True,
        **filter: Any,
    ) -> None:
        self.requests: list[RolloutRequest] = []
        self.said: list[str] = []
        self.sampled: list[tuple[int, list[Group]]] = []
        self.stops_at = stops_at
        self._rewards = rewards if callable(rewards) else lambda task, number, size: rewards
        self.collector = Collector(
            [
                Task(id=str(i), messages=(Message(role="user", content=f"{i}?"),), fields={"n": [i]})
                for i in range(tasks)
            ],
            trainer=PolicyGradientConfig(tasks_per_step=per_step, shuffle=shuffle),
            filter=FilterConfig(**filter),
            group_size=2,
            seed=5,
            success=1.0,
        )

    def collect(self, request: RolloutRequest) -> list[Group] | None:
        """What a sampler does."""
        self.requests.append(request)
        if len(self.requests) == self.stops_at:
            return None
        size = request.group_size
        return [sampled_group(t, self._rewards(int(t.id), request.step, size), request.step) for t in request.tasks]

    def step(self, step: int) -> Collected:
        """What a step collects."""
        collected = self.collector.collect(step, self.collect)
        assert collected is not None
        if collected.sampled:
            self.sampled.append((step, list(collected.sampled)))
        if collected.warning is not None:
            self.said.append(collected.warning)
        return collected

    @property
    def asked(self) -> list[tuple[int, list[int]]]:
        """Number and tasks of every rollout."""
        return [(request.step, [int(task.id) for task in request.tasks]) for request in self.requests]

    @property
    def sizes(self) -> list[int]:
        return [len(request.tasks) for request in self.requests]


def mixed(task: int, number: int, size: int) -> Sequence[float | None]:
    """Split in two of five, else right, wrong or not scored."""
    return (SPLIT, RIGHT, WRONG, (1.0, 0.0), (1.0, None))[derive_seed(task, number) % 5]


def numbers(collected: Collected) -> dict[str, float]:
    return {name.removeprefix("filter/"): value for name, value in collected.metrics.items() if value}


# Without dynamic sampling


@pytest.mark.parametrize("filter", [{}, {"metric": "reward"}])
def test_tasks_keep_their_order_without_shuffling(filter: dict[str, Any]) -> None:
    work = Work(mixed, tasks=10, per_step=4, shuffle=False, **filter)
    for step in range(1, 4):
        work.step(step)
    drawn = [task for _, tasks in work.asked for task in tasks]
    assert drawn[:8] == list(range(8))
    assert drawn[8:12] == [8, 9, 0, 1]


@pytest.mark.parametrize(("tasks", "per_step"), [(4, 4), (7, 4), (12, 4), (13, 5), (1, 1), (40, 16)])
def test_step_without_a_filter_is_one_rollout(tasks: int, per_step: int) -> None:
    work, cursor = Work(mixed, tasks=tasks, per_step=per_step), Cursor()
    for step in range(1, 12):
        collected = work.step(step)
        indices, cursor = draw(cursor, per_step, tasks=tasks, seed=5)
        assert work.asked[-1] == (step, indices)
        assert len(collected.groups) == per_step
        assert (collected.epoch, collected.metrics) == (cursor.epoch, {})
        assert work.sampled[-1] == (step, collected.groups) == (step, collected.sampled)
    assert (len(work.requests), work.said) == (11, [])
    assert (work.requests[0].group_size, work.requests[0].seed, work.requests[0].purpose) == (2, 5, "train")


def test_each_task_is_drawn_once_an_epoch_after_tasks_per_step_changes() -> None:
    before, after = Work(mixed, tasks=10, per_step=2), Work(mixed, tasks=10, per_step=3)
    for step in (1, 2):
        before.step(step)
    after.collector.restore(json.loads(json.dumps(before.collector.state())))
    for step in (3, 4):
        after.step(step)
    drawn = [task for work in (before, after) for _, tasks in work.asked for task in tasks]
    assert sorted(drawn) == list(range(10))


@pytest.mark.parametrize("filter", [{}, {"metric": "reward"}])
def test_too_few_tasks_are_rejected(filter: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="a step needs 4 different tasks"):
        Work(SPLIT, tasks=3, **filter)


# The filter


@pytest.mark.parametrize(
    ("metric", "rewards", "reason"),
    [
        ("reward", RIGHT, "equal"),
        ("accuracy", RIGHT, "all_right"),
        ("accuracy", (0.0, 0.3), "all_wrong"),
        ("all-wrong", (0.0, 0.3), "all_wrong"),
        ("reward", (1.0, None), "not_scored"),
    ],
)
def test_dropped_groups_are_counted_and_replaced(metric: str, rewards: Sequence[float | None], reason: str) -> None:
    first, _ = draw(Cursor(), 4, tasks=40, seed=5)
    work = Work(lambda task, number, size: rewards if task in first[1:] else SPLIT, metric=metric)
    collected = work.step(1)
    assert len(collected.groups) == 4
    assert not {int(group.task.id) for group in collected.groups} & set(first[1:])
    found = numbers(collected)
    assert found[reason] == found["dropped"] == len(collected.sampled) - found["kept"] == 3
    assert set(found) <= {"kept", "dropped", reason, "batches", "carried_out"}
    assert found["batches"] == len(work.requests) > 1


def test_first_step_requests_the_same_tasks_as_without_a_filter() -> None:
    work, plain = Work(SPLIT, metric="accuracy"), Work(SPLIT)
    for step in range(1, 9):
        work.step(step)
        plain.step(step)
    assert work.asked == plain.asked


@pytest.mark.parametrize("when_short", ["train", "skip"])
def test_step_without_kept_groups_ends_at_the_rollout_limit_with_a_warning(when_short: str) -> None:
    work = Work(RIGHT, metric="accuracy", max_extra_batches=2, when_short=when_short)
    for step in (1, 2):
        collected = work.step(step)
        assert (list(collected.groups), len(collected.sampled)) == ([], 12)
        assert numbers(collected) == {"dropped": 12, "all_right": 12, "batches": 3, "short": 1}
    assert work.sizes == [4] * 6
    end = "the step is skipped" if when_short == "skip" else "there is nothing to train on"
    assert work.said[0] == (f"filter    step 1 has 0 of 4 groups after 3 rollouts of 12 tasks (12 all right): {end}")
    assert len(work.said) == 2


def test_without_extra_batches_a_step_is_one_rollout() -> None:
    work = Work(RIGHT, metric="reward", max_extra_batches=0)
    assert numbers(work.step(1))["batches"] == 1


def one_in_four(task: int, number: int, size: int) -> Sequence[float | None]:
    return SPLIT if task % 4 == 0 else RIGHT


def test_short_step_trains_on_the_available_groups() -> None:
    work = Work(one_in_four, metric="accuracy", max_extra_batches=0, tasks=16, per_step=8)
    collected = work.step(1)
    there = len(collected.groups)
    assert 0 < there < 8
    assert numbers(collected) == {"kept": there, "dropped": 8 - there, "all_right": 8 - there, "batches": 1, "short": 1}
    assert work.said[0].endswith(f"has {there} of 8 groups after 1 rollout of 8 tasks ({8 - there} all right): "
                                 "the step trains on these groups")  # fmt: skip
    assert work.collector.state()["carried"] == []


def test_skipped_step_keeps_its_groups_until_there_are_enough() -> None:
    """They are not too old meanwhile: the policy has not moved."""
    work = Work(one_in_four, metric="accuracy", max_extra_batches=0, when_short="skip", tasks=16, per_step=4)
    trained, skipped = [], 0
    for step in range(1, 30):
        collected = work.step(step)
        assert len(collected.groups) in (0, 4)
        assert collected.metrics["filter/stale"] == collected.metrics["filter/discarded"] == 0
        assert collected.metrics["filter/short"] == (not collected.groups)
        trained += collected.groups
        skipped += not collected.groups
    assert skipped > 2 * MAX_AGE
    assert "the step is skipped" in work.said[-1]
    kept = [group for _, groups in work.sampled for group in groups if int(group.task.id) % 4 == 0]
    assert trained == kept[: len(trained)]
    assert len(kept) - len(trained) == len(work.collector.state()["carried"]) < 4


@pytest.mark.parametrize(
    ("wrong", "sizes"),
    [
        (1, [16, 2]),  # one is missing, and 15 of 16 were kept
        (5, [16, 8]),  # 5 · 18 / 12
        (12, [16, 16]),  # never more than a whole step's
    ],
)
def test_extra_rollout_size_follows_the_rate_of_kept_groups(wrong: int, sizes: list[int]) -> None:
    work = Work(
        lambda task, number, size: WRONG if number == 1 and task < wrong else SPLIT,
        metric="reward",
        tasks=16,
        per_step=16,
    )
    assert len(work.step(1).groups) == 16
    assert work.sizes == sizes


def test_rollout_without_scores_is_not_repeated() -> None:
    work = Work((None, None), metric="accuracy")
    assert numbers(work.step(1)) == {"dropped": 4, "not_scored": 4, "batches": 1, "short": 1}


# Oversampling, surplus, ranking


@pytest.mark.parametrize(("oversample", "count"), [(1.1, 55), (1.25, 63), (2, 100), (9, 120)])
def test_oversampling_requests_more_distinct_tasks(oversample: float, count: int) -> None:
    work = Work(SPLIT, tasks=120, per_step=50, oversample=oversample)
    collected = work.step(1)
    assert work.sizes == [count]
    assert len(set(work.asked[0][1])) == count
    assert [int(group.task.id) for group in collected.groups] == work.asked[0][1][:50]
    assert collected.metrics["filter/carried_out"] == count - 50


def test_surplus_groups_are_trained_on_first() -> None:
    work = Work(SPLIT, per_step=4, oversample=1.5)
    first, second = work.step(1), work.step(2)
    assert work.sizes == [6, 3]  # two are carried, so that two are missing
    order = [int(group.task.id) for group in (*first.groups, *second.groups)]
    assert order == [task for _, tasks in work.asked for task in tasks][:8]
    assert numbers(second) == {"kept": 3, "carried_in": 2, "carried_out": 1, "batches": 1}


def test_fate_of_every_sampled_group_is_known() -> None:
    def rewards(task: int, number: int, size: int) -> Sequence[float | None]:
        return (WRONG, SPLIT, (1.0, -1.0), (1.0, None))[task % 4]

    work = Work(rewards, tasks=40, per_step=2, shuffle=False, metric="reward", oversample=6, exclude=["length"])
    first, second = work.step(1), work.step(2)
    assert [fate.kind for fate in first.fates] == ["dropped", "kept", "dropped", "dropped"] * 2 + [
        *("dropped", "carried", "dropped", "dropped")
    ]
    assert [fate.why for fate in first.fates[:4]] == ["equal", "", "not_scored", "not_scored"]
    assert [fate.excluded for fate in first.fates[:4]] == [(), (), (1,), ()]
    assert first.origins == [(1, 1), (1, 5)]
    assert second.origins[0] == (1, 9)
    for collected in (first, second):
        for (step, place), group in zip(collected.origins, collected.groups, strict=True):
            assert first.sampled[place].task == group.task if step == 1 else collected.sampled[place].task == group.task
    restored = Work(rewards, tasks=40, per_step=2, shuffle=False, metric="reward", oversample=6, exclude=["length"])
    restored.collector.restore(json.loads(json.dumps(work.collector.state(1))))
    assert restored.step(2).origins == second.origins


def test_step_filled_by_carried_groups_requests_nothing() -> None:
    work = Work(SPLIT, per_step=4, oversample=2)
    first, second = work.step(1), work.step(2)
    assert work.sizes == [8]
    assert list(second.groups) == list(first.sampled)[4:]
    assert (list(second.sampled), numbers(second)) == ([], {"carried_in": 4})
    assert [step for step, _ in work.sampled] == [1]
    assert second.epoch == first.epoch


def graded(task: int, number: int, size: int) -> Sequence[float | None]:
    """The higher the task's number, the wider the rewards spread; that of rollout 1 is least."""
    return (0.0, (task + 1) / 100 if number > 1 else (task + 1) / 10000)


def test_ranking_selects_the_groups_with_the_largest_spread() -> None:
    work = Work(graded, per_step=4, oversample=3, rank_by_std=True)
    collected = work.step(1)
    tasks = work.asked[0][1]
    assert len(tasks) == 12
    best = sorted(tasks)[-4:]
    assert [int(group.task.id) for group in collected.groups] == [task for task in tasks if task in best]


def test_ranking_prefers_older_groups_on_ties() -> None:
    work = Work(SPLIT, per_step=4, oversample=2, rank_by_std=True)
    work.step(1)
    second = work.step(2)
    assert work.sizes == [8, 8]
    assert [int(group.task.id) for group in second.groups] == work.asked[0][1][4:]


@pytest.mark.parametrize("filter", [{}, {"metric": "reward"}])
def test_excluded_stops_are_left_out_of_groups_and_counted(filter: dict[str, Any]) -> None:
    work = Work((0.0, 1.0, -1.0), per_step=4, exclude=["length"], **filter)
    collected = work.step(1)
    assert [group.rewards_G for group in collected.groups] == [(0.0, 1.0, None)] * 4
    assert [group.rewards_G for group in collected.sampled] == [(0.0, 1.0, -1.0)] * 4  # records keep the rewards
    assert collected.metrics["filter/excluded"] == 4


def test_group_that_lost_its_siblings_is_dropped_whole() -> None:
    def rewards(task: int, number: int, size: int) -> Sequence[float | None]:
        return (1.0, -1.0) if task % 2 else SPLIT

    work = Work(rewards, per_step=4, shuffle=False, metric="reward", exclude=["length"])
    collected = work.step(1)
    assert [group.rewards_G for group in collected.groups] == [SPLIT] * 4
    assert collected.metrics["filter/not_scored"] == collected.metrics["filter/excluded"] > 0


def test_warning_names_what_excluded_trajectories_stopped_for() -> None:
    work = Work((1.0, -1.0), per_step=4, metric="reward", exclude=["length"], max_extra_batches=0)
    work.step(1)
    assert "(4 not scored; 4 trajectories excluded: length)" in work.said[0]


def test_unknown_score_stops_the_run_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="good/part") as error:
        Work(SPLIT, metric="accuracy", score="good/accuracy").step(1)
    assert error.value.where == "algorithm.filter.score"
    known = Work(SPLIT, metric="accuracy", score="good").step(1)
    assert len(known.groups) == 4


def test_carried_group_is_dropped_at_the_age_limit() -> None:
    work = Work(graded, tasks=64, per_step=4, oversample=1.25, rank_by_std=True)
    ages: dict[int, list[int]] = {}
    for step in range(1, MAX_AGE + 3):
        collected = work.step(step)
        born = [number_of(group) for group in collected.groups]
        assert max(step - number for number in born) <= MAX_AGE
        ages[step] = [item["born"] for item in work.collector.state()["carried"]]
        stale = collected.metrics["filter/stale"]
        assert (stale > 0) == (step == MAX_AGE + 2)  # what the first rollout left
        if stale:
            assert stale == sum(born == 0 for born in ages[step - 1])
    assert 0 not in ages[MAX_AGE + 2]


def test_carried_groups_are_limited_by_rank() -> None:
    work = Work(graded, tasks=200, per_step=2, oversample=4, rank_by_std=True)
    for step in range(1, 4):
        before = work.collector.state().get("carried", [])
        collected = work.step(step)
        assert len(work.collector.state()["carried"]) <= 8
    found = numbers(collected)
    assert len(before) == 8
    assert found["discarded"] == 8 + 8 - 2 - 8 == 6
    assert found["carried_out"] == 8


@given(
    st.integers(1, 12),
    st.integers(1, 5),
    st.sampled_from(["none", "reward", "accuracy", "all-wrong"]),
    st.sampled_from([1.0, 1.3, 2.0, 3.5]),
    st.booleans(),
    st.integers(0, 3),
    st.sampled_from(["train", "skip"]),
)
@settings(max_examples=60, deadline=None)
def test_every_sampled_group_is_counted_and_trained_on_at_most_once(
    more: int, per_step: int, metric: str, oversample: float, rank: bool, extra: int, when_short: str
) -> None:
    tasks = per_step + more
    filter = {"metric": metric, "oversample": oversample, "rank_by_std": rank, "when_short": when_short}
    work = Work(mixed, tasks=tasks, per_step=per_step, max_extra_batches=extra, **filter)
    carried, trained = 0.0, []
    for step in range(1, 9):
        rollouts = len(work.requests)
        collected = work.step(step)
        trained += collected.groups
        assert len(collected.groups) <= per_step
        assert len(work.requests) - rollouts <= extra + 1
        if not work.collector.dynamic:
            assert collected.metrics == {}
            continue
        found = {name.removeprefix("filter/"): value for name, value in collected.metrics.items()}
        assert found["kept"] + found["dropped"] == len(collected.sampled)
        assert found["dropped"] == sum(found[name] for name in ("all_right", "all_wrong", "equal", "not_scored"))
        assert found["carried_in"] == carried
        gone = len(collected.groups) + found["carried_out"] + found["stale"] + found["discarded"]
        assert found["carried_in"] + found["kept"] == gone
        assert found["batches"] == len(work.requests) - rollouts
        assert found["short"] == (len(collected.groups) < per_step)
        carried = found["carried_out"]
        assert carried <= per_step * -(-oversample // 1)
    keys = [(group.task.id, number_of(group)) for group in trained]
    assert len(set(keys)) == len(keys)
    assert [number for number, _ in work.asked] == list(range(1, len(work.asked) + 1))
    for _, asked in work.asked:
        assert len(set(asked)) == len(asked)


# Interruptions


@pytest.mark.parametrize("filter", [{}, {"metric": "accuracy"}])
@pytest.mark.parametrize("stops_at", [1, 2, 5])
def test_interrupted_step_leaves_the_state_unchanged(filter: dict[str, Any], stops_at: int) -> None:
    whole, cut = Work(mixed, **filter), Work(mixed, stops_at=stops_at, **filter)
    step = 1
    while (found := cut.collector.collect(step, cut.collect)) is not None:
        assert found == whole.step(step)
        step += 1
    assert len(cut.requests) == stops_at
    assert cut.collector.state() == whole.collector.state()
    assert [cut.step(step + i) for i in range(3)] == [whole.step(step + i) for i in range(3)]


def test_step_rejected_after_collection_is_not_counted() -> None:
    work = Work(mixed, metric="accuracy")
    work.step(1)
    state = work.collector.state()
    work.step(2)
    assert work.collector.state(1) == state != work.collector.state(2)


def test_step_interrupted_before_its_update_can_be_collected_again() -> None:
    whole, again = Work(mixed, oversample=1.5), Work(mixed, oversample=1.5)
    assert whole.collector.state(0) == {}
    steps = []
    for step in range(1, 6):
        steps.append(whole.step(step))
        state = whole.collector.state(step)
        assert whole.collector.state() == state == whole.collector.state(step + 1)
        again.collector.restore(before := whole.collector.state(step - 1))
        assert again.step(step) == steps[-1]
        assert again.collector.state(step) == state
        assert again.collector.state(step - 1) == before


@pytest.mark.parametrize(
    "filter",
    [
        {"metric": "accuracy"},
        {"metric": "reward", "oversample": 1.5, "when_short": "skip", "max_extra_batches": 0},
        {"oversample": 2.5, "rank_by_std": True},
    ],
)
def test_restored_collector_continues_identically(filter: dict[str, Any]) -> None:
    whole = Work(mixed, tasks=11, **filter)
    steps = [whole.step(step) for step in range(1, 13)]
    carried = 0
    for cut in (0, 1, 4, 6, 11):
        first, second = Work(mixed, tasks=11, **filter), Work(mixed, tasks=11, **filter)
        for step in range(1, cut + 1):
            first.step(step)
        state = json.loads(json.dumps(first.collector.state(), allow_nan=False))
        carried += len(state.get("carried", ()))
        second.collector.restore(state)
        assert second.collector.state() == first.collector.state()
        assert [second.step(step) for step in range(cut + 1, 13)] == steps[cut:]
        assert first.asked + second.asked == whole.asked
    assert carried


def test_carried_groups_are_restored_exactly() -> None:
    work, again = (Work((0.1 + 0.2, 1 / 3), per_step=4, oversample=2) for _ in range(2))
    left = list(work.step(1).sampled)[4:]
    again.collector.restore(work.collector.state())
    found = again.step(2).groups
    assert list(found) == left
    for before, after in zip(left, found, strict=True):
        assert before.task.fields["n"] == after.task.fields["n"]
        for one, other in zip(before.trajectories, after.trajectories, strict=True):
            assert one.segments[0].logprobs.tobytes() == other.segments[0].logprobs.tobytes()
            assert (one.reward or 0.0).hex() == (other.reward or 0.0).hex()
            assert one.messages == other.messages


def test_task_field_without_json_form_is_accepted() -> None:
    work = Work(SPLIT, per_step=4, oversample=2)
    work.collector._tasks = [Task(id=task.id, messages=(), fields={"raw": b"x"}) for task in work.collector._tasks]
    work.step(1)
    assert json.dumps(work.collector.state())


def test_filter_enabled_later_starts_at_the_current_position() -> None:
    plain, work = Work(SPLIT, tasks=10), Work(SPLIT, tasks=10, metric="accuracy")
    plain.step(1)
    work.collector.restore(plain.collector.state())
    plain.step(2)
    work.step(2)
    assert work.asked == plain.asked[1:]


def test_filter_disabled_later_drops_carried_groups() -> None:
    work, plain = Work(SPLIT, oversample=2), Work(SPLIT)
    work.step(1)
    plain.collector.restore(work.collector.state())
    plain.step(2)
    assert plain.asked == [(2, draw(Cursor(position=8), 4, tasks=40, seed=5)[0])]
    assert plain.collector.state()["carried"] == []


def test_changed_data_starts_a_new_epoch_and_keeps_carried_groups() -> None:
    work, other = Work(SPLIT, tasks=40, oversample=1.5), Work(SPLIT, tasks=10, oversample=1.5)
    left = list(work.step(1).sampled)[4:]
    other.collector.restore(work.collector.state())
    collected = other.step(2)
    assert list(collected.groups)[:2] == left
    assert collected.epoch == 1
    assert other.asked == [(2, draw(Cursor(epoch=1, position=0), 3, tasks=10, seed=5)[0])]


# The data order


@given(st.integers(1, 30), st.data())
@settings(max_examples=80, deadline=None)
def test_draws_have_no_duplicates_and_epochs_are_permutations(tasks: int, data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, tasks), max_size=25))
    cursor, drawn = Cursor(epoch=0, position=0), []
    for count in counts:
        taken, cursor = draw(cursor, count, tasks=tasks, seed=3)
        assert len(set(taken)) == len(taken) == count
        drawn += taken
        passed = cursor.epoch * tasks + cursor.position - len(cursor.deferred)
        assert passed == len(drawn)
    for start in range(0, len(drawn), tasks):
        epoch = drawn[start : start + tasks]
        assert len(set(epoch)) == len(epoch)
        if len(epoch) == tasks:
            assert sorted(epoch) == list(range(tasks))


def test_every_epoch_and_every_seed_has_another_order() -> None:
    orders = [draw(Cursor(epoch=epoch), 12, tasks=12, seed=seed)[0] for epoch in (0, 1) for seed in (3, 4)]
    assert len(set(map(tuple, orders))) == 4


def test_duplicate_task_is_deferred_to_the_next_draw() -> None:
    orders = [draw(Cursor(epoch=epoch, position=0), 6, tasks=6, seed=0)[0] for epoch in (0, 1)]
    tail = orders[0][3:]
    taken, cursor = draw(Cursor(epoch=0, position=3), 6, tasks=6, seed=0)
    assert taken == tail + [task for task in orders[1] if task not in tail]
    assert cursor.deferred == tuple(task for task in orders[1][: cursor.position] if task in tail)
    assert cursor.deferred
    following, _ = draw(cursor, 3, tasks=6, seed=0)
    assert sorted(following) == sorted(tail)
    assert following[: len(cursor.deferred)] == list(cursor.deferred)


def test_drawing_more_tasks_than_available_is_rejected() -> None:
    with pytest.raises(ValueError, match="7 different tasks out of 6"):
        draw(Cursor(epoch=0, position=0), 7, tasks=6, seed=0)
