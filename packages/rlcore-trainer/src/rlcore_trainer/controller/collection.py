"""Collect the groups that a step trains on: mixtures of environments, the curriculum and dynamic sampling.

Without a filter or oversampling, a step is one rollout of its tasks. With either, rollouts are requested until enough
groups remain or the maximum number of rollouts is reached. Surplus groups are carried over to the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlcore.console.wording import counted
from rlcore.types import Group, RolloutRequest, Task

from rlcore_trainer.batching.filtering import check_score
from rlcore_trainer.controller.collector_state import CollectorState
from rlcore_trainer.controller.selection import Collected, Selection, SortedGroups

Sample = Callable[[RolloutRequest], Sequence[Group] | None]
"""Returns the scored groups of a request, or None if a stop interrupted it and the step must be discarded."""


class Collector(Selection):
    """Collects the groups of each step with rollouts, which sample with the newest weights."""

    def collect(self, step: int, sample: Sample) -> Collected | None:
        """Collect the groups of a step; None if the step was interrupted, which leaves the state unchanged.

        The tasks continue where the last step ended. With dynamic sampling, rollouts are numbered consecutively, so a
        task that is drawn again uses different random numbers, and a step ends after at most ``max_extra_batches`` + 1
        rollouts, or after a rollout without any scored trajectory, because another one would likely fail in the same
        way.
        """
        return self._dynamic(step, sample) if self.dynamic else self._drawn(step, sample)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state`. Groups that a stream had not trained are sampled again, from the next step on."""
        super().restore(state)
        if self._between is None or not self._between.ledger:
            return
        kept = self._between.carried if self.dynamic else ()
        again = {(one.environment, one.id) for one in self._between.running}
        if not self.dynamic:
            again |= {(one.group.task.environment, one.group.task.id) for one in self._between.carried}
        drawn = self._mixture.first(self._between.drawn, again) if again else self._between.drawn
        self._between = replace(self._between, drawn=drawn, carried=kept, running=(), ledger={})

    def _drawn(self, step: int, sample: Sample) -> Collected | None:
        """Collect one rollout."""
        before = self._between or self._start(step)
        drawn = self._mixture.draw(before.drawn, self._per_step, step)
        groups = sample(self._request(drawn.tasks, step))
        if groups is None:
            return None
        state = self._measured(drawn, groups)
        self._before, self._step = self._between, step
        self._between = CollectorState(drawn=state, batch=step, trained=before.trained + 1)
        sorted_groups = SortedGroups(self._filter, self._success, step, [])
        sorted_groups.add(groups, born=before.trained, all=True)
        return self._collected(sorted_groups, sorted_groups.pool, [], before=before, state=state, metrics={})

    def _dynamic(self, step: int, sample: Sample) -> Collected | None:
        before = self._between or self._start(step)
        state, batch = before.drawn, before.batch
        brought = [waiting for waiting in before.carried if before.trained - waiting.born <= self._max_age]
        groups = SortedGroups(self._filter, self._success, step, brought)
        for extra in range(self._filter.max_extra_batches + 1):
            count = self._more(groups) if extra else self._first(len(brought))
            if not count:
                break
            drawn = self._mixture.draw(state, count, step)
            batch += 1
            sampled = sample(self._request(drawn.tasks, batch))
            if sampled is None:
                return None
            state = self._measured(drawn, sampled)
            check_score(sampled, self._filter.score)
            left = groups.add(sampled, born=before.trained)
            if all(reward is None for group in left for reward in group.rewards_G):
                break
        chosen, carried = self._choose(groups.pool)
        self._before, self._step = self._between, step
        self._between = CollectorState(
            drawn=state, batch=batch, trained=before.trained + bool(chosen), carried=tuple(carried)
        )
        batches = batch - before.batch
        rollouts = f"{counted(batches, 'rollout')} of {counted(len(groups.sampled), 'task')}"
        return self._collected(
            groups,
            chosen,
            carried,
            before=before,
            state=state,
            metrics={"filter/batches": float(batches)},
            warning=self._warning(step, groups, rollouts),
        )

    def _request(self, tasks: Sequence[Task], number: int) -> RolloutRequest:
        return RolloutRequest(tasks=tasks, group_size=self._group_size, seed=self._seed, step=number)

    def _first(self, waiting: int) -> int:
        """Tasks of a step's first rollout. Ranking always samples a full step, regardless of carried groups."""
        missing = self._per_step if self._filter.rank_by_std else max(0, self._per_step - waiting)
        return min(self._oversampled(missing), len(self._tasks))

    def _more(self, groups: SortedGroups) -> int:
        """Tasks of an additional rollout: as many as should fill the step at the step's rate of kept groups.

        The rate is Laplace's estimate (kept + 1) / (sampled + 2), which is never 0. No rollout is larger than that of a
        full step.
        """
        missing = max(0, self._per_step - len(groups.pool))
        likely = -(-missing * (len(groups.sampled) + 2) // (groups.kept + 1))
        return min(likely, self._oversampled(self._per_step), len(self._tasks))
