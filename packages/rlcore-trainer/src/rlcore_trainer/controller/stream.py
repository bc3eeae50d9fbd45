"""Collect the groups that a step trains on while sampling goes on: groups arrive as they end, whatever their step.

A step takes the groups that have ended, oldest first. Tasks are submitted so that a fixed number of groups is sampled
or waits for training, which bounds how old groups become: with ``ahead`` steps of groups in addition to its own, a
group is usually trained at most ``ahead`` steps after the first of its tokens. A trajectory that takes longer than the
others goes on, and its group is trained later, or dropped if it has become older than ``max_age`` steps.
"""

from __future__ import annotations

import queue
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from rlcore.abilities import KeepsGroups
from rlcore.console.wording import counted
from rlcore.episodes.not_scored import not_scored_sentence
from rlcore.errors import EngineError
from rlcore.types import Boundary, Group, RolloutKey, Task

from rlcore_trainer.batching.filtering import check_score
from rlcore_trainer.batching.mixture import Drawn
from rlcore_trainer.controller.collector_state import CollectorState, Running
from rlcore_trainer.controller.report import Report
from rlcore_trainer.controller.selection import Collected, Selection, SortedGroups

ATTEMPTS = 3
"""Failures of the engine after which a group is left out."""
LOOK_S = 0.2
"""Longest time in seconds without a look whether the run is to stop."""
DROPPED = {
    "all_right": "all right",
    "all_wrong": "all wrong",
    "equal": "with equal rewards",
    "not_scored": "not scored",
    "age": "too old",
    "surplus": "more than needed",
    "removed": "of tasks that no longer exist",
    "failed": "failed",
}
"""Why groups were dropped, in words."""


class Streaming(Protocol):
    """Samples single groups, also while the policy is trained and its weights are transferred."""

    @property
    def version(self) -> int:
        """Version of the weights with which sampling goes on."""
        ...

    def submit(self, task: Task, key: RolloutKey, *, place: int) -> Future[Group]:
        """Start the trajectories of a task; see `rlcore.contracts.TokenSampler.submit`."""
        ...

    def recover(self, error: EngineError) -> None:
        """Report the failure of an engine, and transfer the weights again, which restarts an engine that died."""
        ...

    def stopping(self) -> bool:
        """Whether the run is to stop."""
        ...


@dataclass(slots=True, eq=False)
class _Submitted:
    """A group that is being sampled."""

    running: Running
    task: Task
    born: int
    """Number of steps that were trained when it was submitted."""
    recoveries: int
    """Number of failures of the engine before it was submitted."""
    attempts: int
    """How often it has failed because of the engine."""


class Stream(Selection):
    """Collects the groups of each step from a stream.

    Args:
        ahead: steps by which sampling is ahead of training
        steps: the last step, after which no more groups are needed
        report: shows the progress, and stores groups
        settings: the arguments of `Selection`
    """

    def __init__(self, tasks: Sequence[Task], *, ahead: int, steps: int, report: Report, **settings: Any) -> None:
        super().__init__(tasks, **settings)
        self._ahead, self._steps, self._report = ahead, steps, report
        if not self._filter.rank_by_std:
            self._room = sys.maxsize  # what has ended is trained later
        self._keeper = report if isinstance(report, KeepsGroups) else None
        self._submitted: dict[_Submitted, None] = {}
        self._ended: queue.SimpleQueue[tuple[_Submitted, Future[Group]]] = queue.SimpleQueue()
        self._drawn, self._batch, self._ledger = self._mixture.start(), 0, Counter[str]()
        """The position in the tasks and the ledger, which are ahead of the last state."""
        self._trained_at: dict[int, int] = {}
        """Number of steps that were trained when a version of the weights was transferred."""
        self._recoveries, self._fruitless = 0, False

    def collect(self, step: int, sampler: Streaming) -> Collected | None:
        """Collect the groups of a step; None if it was interrupted, which leaves the state of `state` unchanged."""
        before, first = self._between or self._start(step), not self._trained_at
        self._trained_at[sampler.version] = before.trained
        if first:
            self._resume(before, sampler)
        brought = [waiting for waiting in before.carried if not self._too_old(waiting.born, before)]
        self._ledger["age"] += len(before.carried) - len(brought)
        groups = SortedGroups(self._filter, self._success, step, brought)
        self._submit_missing(step, groups, sampler)
        with self._report.progress("rollout", self._wanted * self._group_size, "trajectory") as meter:
            meter.advance(min(self._there(groups), self._wanted) * self._group_size)
            while True:
                enough = self._is_enough(groups)
                if (ended := self._next(sampler, wait=not enough)) is not None:
                    submitted, group = ended
                    self._add(submitted, group, groups, before)
                    meter.advance(self._group_size, tokens=sum(one.sampled_tokens for one in group.trajectories))
                    if not enough:
                        self._submit_missing(step, groups, sampler)
                elif sampler.stopping():
                    return None
                elif enough:
                    self._submit_missing(step, groups, sampler)
                    return self._taken(step, before, groups)
                meter.refresh()

    def summary(self) -> str | None:
        """Return what became of all groups of the run, after its last step."""
        if self._between is None:
            return None
        submitted, trained = (self._between.ledger.get(name, 0) for name in ("submitted", "trained"))
        lost = Counter({name: self._between.ledger.get(name, 0) for name in DROPPED})
        why = ", ".join(f"{count} {DROPPED[name]}" for name, count in (+lost).most_common())
        dropped = f", {lost.total()} dropped ({why})" if why else ""
        return f"groups    {submitted} submitted: {trained} trained{dropped}, {submitted - trained - lost.total()} left"

    def _too_old(self, born: int, before: CollectorState) -> bool:
        return before.trained - born > self._max_age

    def _add(self, submitted: _Submitted, group: Group, groups: SortedGroups, before: CollectorState) -> None:
        """Store a group that has ended, and add it to those of the step unless it is dropped."""
        if self._keeper is not None:
            self._keeper.group_finished("train", group)
        place = submitted.running.environment, submitted.running.task
        drawn = Drawn(tasks=(group.task,), places=(place,), state=self._drawn)
        self._drawn = self._measured(drawn, (group,))
        oldest = group.oldest_version
        born = submitted.born if oldest is None else self._trained_at.get(oldest, submitted.born)
        groups.add((group,), born=born, too_old=self._too_old(born, before), all=not self.dynamic)

    def _taken(self, step: int, before: CollectorState, groups: SortedGroups) -> Collected:
        if not self._ledger["trained"]:  # later ones may all be of an environment without this value
            check_score(groups.sampled, self._filter.score)
        groups.pool.sort(key=lambda waiting: waiting.born)  # stable: groups of the same age in the order of their end
        chosen, carried = self._choose(groups.pool)
        self._ledger.update(groups.reasons)
        self._ledger["trained"] += len(chosen)
        self._ledger["surplus"] += len(groups.pool) - len(chosen) - len(carried)
        self._before, self._step = self._between, step
        self._between = CollectorState(
            drawn=self._drawn,
            batch=self._batch,
            trained=before.trained + bool(chosen),
            carried=tuple(carried),
            running=tuple(submitted.running for submitted in self._submitted),
            ledger=dict(+self._ledger),
        )
        if sentence := not_scored_sentence([one for group in groups.sampled for one in group.trajectories]):
            self._report.say(sentence)
        ages = [before.trained - waiting.born for waiting in chosen] or [0]
        numbers = {
            "running": len(self._submitted),
            "waiting": len(carried),
            "too_old": self._ledger["age"] - before.ledger.get("age", 0),
            "age_mean": sum(ages) / len(ages),
            "age_max": max(ages),
        }
        return self._collected(
            groups,
            chosen,
            carried,
            before=before,
            state=self._drawn,
            metrics={f"stream/{name}": float(value) for name, value in numbers.items()},
            warning=self._warning(step, groups, counted(len(groups.sampled), "new group")),
        )

    @property
    def _wanted(self) -> int:
        """Number of groups with which a step begins."""
        return self._oversampled(self._per_step) if self._filter.rank_by_std else self._per_step

    def _there(self, groups: SortedGroups) -> int:
        """Number of groups that count for the start of a step. Ranking compares a full step of new ones with others."""
        return groups.kept if self._filter.rank_by_std else len(groups.pool)

    def _is_enough(self, groups: SortedGroups) -> bool:
        """Whether a step has its groups, or will not get them in a reasonable time."""
        sampled = len(groups.sampled) - groups.reasons["age"]
        if self._there(groups) >= self._wanted or not self._submitted:
            return True
        if not self.dynamic:
            return False
        if sampled >= (self._filter.max_extra_batches + 1) * self._oversampled(self._per_step):
            return True
        # Others would likely fail in the same way.
        return sampled >= self._per_step and groups.reasons["not_scored"] == sampled

    def _submit_missing(self, step: int, groups: SortedGroups, sampler: Streaming) -> None:
        """Submit tasks until enough groups are sampled or wait."""
        ahead = min(self._ahead, max(0, self._steps - step))
        most = ahead * self._per_step + self._oversampled(self._per_step)
        missing = most - len(self._submitted) - self._there(groups)
        while missing > 0:
            # The tasks of a draw are different, so it cannot have more than there are.
            drawn = self._mixture.draw(self._drawn, min(missing, self._per_step), step)
            self._drawn, self._batch = drawn.state, self._batch + 1
            for place, (task, (environment, index)) in enumerate(zip(drawn.tasks, drawn.places, strict=True)):
                running = Running(environment=environment, task=index, id=task.id, batch=self._batch, place=place)
                self._submit(running, task, sampler)
            self._ledger["submitted"] += len(drawn.tasks)
            missing -= len(drawn.tasks)

    def _submit(self, running: Running, task: Task, sampler: Streaming, attempts: int = 0) -> None:
        key = RolloutKey(group_size=self._group_size, seed=self._seed, step=running.batch)
        submitted = _Submitted(running, task, self._trained_at[sampler.version], self._recoveries, attempts)
        self._submitted[submitted] = None
        future = sampler.submit(task, key, place=running.place)
        future.add_done_callback(lambda done: self._ended.put((submitted, done)))

    def _resume(self, before: CollectorState, sampler: Streaming) -> None:
        """Continue from a state, and submit again what was running."""
        self._drawn, self._batch, self._ledger = before.drawn, before.batch, Counter(before.ledger)
        if not before.ledger:  # carried from steps without a stream
            self._ledger["submitted"] = len(before.carried)
        for running in before.running:
            task = self._mixture.task(running.environment, running.task)
            if task is None or task.id != running.id:  # the data has changed
                self._ledger["removed"] += 1
            else:
                self._submit(running, task, sampler)

    def _next(self, sampler: Streaming, *, wait: bool) -> tuple[_Submitted, Group] | None:
        """Return the next group that has ended; None if there is none, at a stop, and after a failure of the engine."""
        if sampler.stopping():
            return None
        try:
            submitted, future = self._ended.get(timeout=LOOK_S) if wait else self._ended.get_nowait()
        except queue.Empty:
            return None
        del self._submitted[submitted]
        try:
            group = future.result()
        except EngineError as error:
            self._failed(submitted, error, sampler)
            return None
        if _engine_failed(group) and not submitted.attempts:
            self._submit(submitted.running, submitted.task, sampler, 1)
            return None
        self._fruitless = False
        return submitted, group

    def _failed(self, submitted: _Submitted, error: EngineError, sampler: Streaming) -> None:
        """Submit a group again whose engine died, and drop it if it has died several times with this group."""
        if submitted.recoveries == self._recoveries:  # others of the same failure follow
            if self._fruitless:
                raise error
            sampler.recover(error)
            self._recoveries, self._fruitless = self._recoveries + 1, True
        if submitted.attempts + 1 < ATTEMPTS:
            self._submit(submitted.running, submitted.task, sampler, submitted.attempts + 1)
        else:
            self._ledger["failed"] += 1
            self._report.say(
                f"groups    a group of the task {submitted.task.id} is left out after {ATTEMPTS} failures: {error}"
            )


def _engine_failed(group: Group) -> bool:
    """Whether the engine failed in all trajectories of a group."""
    return all(one.failure is not None and one.failure.boundary is Boundary.ENGINE for one in group.trajectories)


__all__ = ["Stream", "Streaming"]
