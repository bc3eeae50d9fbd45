"""Dynamic sampling: collect the groups that a step trains on.

Without a filter or oversampling, a step is one rollout of its tasks. With either, rollouts are requested until enough
groups remain or the maximum number of rollouts is reached. Surplus groups are carried over to the next step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rlcore.types import Group, RolloutRequest, Task
from rlcore.wording import counted

from rlcore_trainer.algorithms.config import FilterConfig
from rlcore_trainer.batching.data_order import Cursor, cursor_of_step, draw, tasks_of_step
from rlcore_trainer.batching.filtering import REASONS, Reason, sift, spread
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.training.collector_state import CollectorState, Waiting, from_json

MAX_AGE = 2
"""Maximum age of a carried group, in training steps; older groups are dropped."""


class RolloutSource(Protocol):
    """Source of scored groups for a `Collector`."""

    def collect(self, request: RolloutRequest) -> Sequence[Group] | None:
        """Return the scored groups of a request, or None if a stop interrupted it and the step must be discarded."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The groups of a step."""

    groups: Sequence[Group]
    """The groups to train on, oldest first; empty if the step is skipped."""
    sampled: Sequence[Group]
    """All groups sampled in the step; empty if the carried groups were enough."""
    metrics: Mapping[str, float]
    """``filter/…`` metrics; empty without dynamic sampling."""
    epoch: int
    """The epoch of the last drawn task, starting from 0."""
    warning: str | None = None
    """A warning for the log if the step has too few groups."""


class Collector:
    """Collects the groups of each step.

    Args:
        tasks: the training tasks
        trainer: provides the number of groups per step
        filter: the filter, oversampling and the action when too few groups remain
        group_size: trajectories per task
        seed: seed of the run; together with the rollout number, it keys all randomness
        success: minimum reward of a correct trajectory

    Raises:
        DataError: there are fewer tasks than a step needs.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        trainer: PolicyGradientConfig,
        filter: FilterConfig,
        group_size: int,
        seed: int,
        success: float,
    ) -> None:
        self._tasks, self._filter, self._per_step = tasks, filter, trainer.tasks_per_step
        self._group_size, self._seed, self._success = group_size, seed, success
        self._order_seed = seed if trainer.shuffle else None
        self._between: CollectorState | None = None
        self._before: CollectorState | None = None
        self._step = 0
        cursor_of_step(1, tasks=len(tasks), per_step=self._per_step)

    @property
    def dynamic(self) -> bool:
        """Whether dynamic sampling is enabled, so that a step may differ from one rollout of its tasks."""
        return self._filter.metric != "none" or self._filter.oversample > 1

    def collect(self, step: int, source: RolloutSource) -> Collected | None:
        """Collect the groups of a step; None if the step was interrupted, which leaves the state unchanged.

        Without dynamic sampling, tasks and rollout number depend only on the step. With it, tasks continue where the
        last step ended and rollouts are numbered consecutively, so a task that is drawn again uses different random
        numbers. A step ends after at most ``max_extra_batches`` + 1 rollouts, or after a rollout without any scored
        trajectory, because another rollout would likely fail in the same way.
        """
        return self._dynamic(step, source) if self.dynamic else self._plain(step, source)

    def state(self, step: int | None = None) -> dict[str, Any]:
        """Return the state for `restore` as plain JSON values; empty without dynamic sampling.

        Args:
            step: the last completed step, which may be the one before the last collected step if that step was
                interrupted before its update
        """
        between = self._between if step is None or step >= self._step else self._before
        if between is None or not self.dynamic:
            return {}
        return {"tasks": len(self._tasks), **between.to_json()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state`; with an empty state, the next step starts at the data position of an unfiltered run.

        If the number of tasks has changed, a new epoch begins.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the state is malformed.
        """
        self._between = self._before = None
        self._step = 0
        if not state or not self.dynamic:
            return
        between = from_json(state)
        if state["tasks"] != len(self._tasks):
            between = replace(between, cursor=Cursor(epoch=between.cursor.epoch + 1, position=0))
        self._between = between

    def _plain(self, step: int, source: RolloutSource) -> Collected | None:
        epoch, indices = tasks_of_step(step, tasks=len(self._tasks), per_step=self._per_step, seed=self._order_seed)
        groups = source.collect(self._request(indices, step))
        if groups is None:
            return None
        return Collected(groups=groups, sampled=groups, metrics={}, epoch=epoch)

    def _dynamic(self, step: int, source: RolloutSource) -> Collected | None:
        before = self._between or CollectorState(
            cursor=cursor_of_step(step, tasks=len(self._tasks), per_step=self._per_step), batch=step - 1
        )
        cursor, batch = before.cursor, before.batch
        pool = [waiting for waiting in before.carried if before.trained - waiting.born <= MAX_AGE]
        brought = len(pool)
        sampled: list[Group] = []
        reasons: Counter[Reason] = Counter()
        for extra in range(self._filter.max_extra_batches + 1):
            count = self._more(len(pool), len(pool) - brought, len(sampled)) if extra else self._first(len(pool))
            if not count:
                break
            indices, cursor = draw(cursor, count, tasks=len(self._tasks), seed=self._order_seed)
            batch += 1
            groups = source.collect(self._request(indices, batch))
            if groups is None:
                return None
            sampled += groups
            kept, dropped = sift(groups, self._filter.metric, self._success)
            pool += [Waiting(group, before.trained) for group in kept]
            reasons += dropped
            if all(reward is None for group in groups for reward in group.rewards_G):
                break
        chosen, carried = self._choose(pool)
        self._before, self._step = self._between, step
        self._between = CollectorState(
            cursor=cursor, batch=batch, trained=before.trained + bool(chosen), carried=tuple(carried)
        )
        short = len(pool) < self._per_step
        metrics: dict[str, float] = {
            "kept": len(pool) - brought,
            "dropped": reasons.total(),
            **{reason: reasons[reason] for reason in REASONS},
            "carried_in": len(before.carried),
            "carried_out": len(carried),
            "stale": len(before.carried) - brought,
            "discarded": len(pool) - len(chosen) - len(carried),
            "batches": batch - before.batch,
            "short": short,
        }
        return Collected(
            groups=[waiting.group for waiting in chosen],
            sampled=sampled,
            metrics={f"filter/{name}": float(value) for name, value in metrics.items()},
            epoch=cursor.epoch,
            warning=self._warning(step, len(pool), batch - before.batch, len(sampled), reasons) if short else None,
        )

    def _request(self, indices: Sequence[int], number: int) -> RolloutRequest:
        tasks = [self._tasks[index] for index in indices]
        return RolloutRequest(tasks=tasks, group_size=self._group_size, seed=self._seed, step=number)

    def _first(self, waiting: int) -> int:
        """Tasks of a step's first rollout. Ranking always samples a full step, regardless of carried groups."""
        missing = self._per_step if self._filter.rank_by_std else max(0, self._per_step - waiting)
        return min(self._oversampled(missing), len(self._tasks))

    def _more(self, waiting: int, kept: int, sampled: int) -> int:
        """Tasks of an additional rollout: as many as should fill the step at the step's rate of kept groups.

        The rate is Laplace's estimate (kept + 1) / (sampled + 2), which is never 0. No rollout is larger than that of a
        full step.
        """
        missing = max(0, self._per_step - waiting)
        likely = -(-missing * (sampled + 2) // (kept + 1))
        return min(likely, self._oversampled(self._per_step), len(self._tasks))

    def _oversampled(self, count: int) -> int:
        return math.ceil(round(count * self._filter.oversample, 9))  # 50 × 1.1 is slightly larger than 55

    def _choose(self, pool: Sequence[Waiting]) -> tuple[list[Waiting], list[Waiting]]:
        """Return the groups to train on and the groups to carry over, both oldest first."""
        if len(pool) < self._per_step and self._filter.when_short == "skip":
            return [], list(pool)
        order = list(range(len(pool)))
        if self._filter.rank_by_std:
            order.sort(key=lambda index: -spread(pool[index].group))
        room = self._per_step * (1 + math.ceil(self._filter.oversample))
        chosen, carried = order[: self._per_step], order[self._per_step : room]
        return [pool[index] for index in sorted(chosen)], [pool[index] for index in sorted(carried)]

    def _warning(self, step: int, there: int, rollouts: int, sampled: int, reasons: Counter[Reason]) -> str:
        went = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in reasons.most_common())
        if self._filter.when_short == "skip":
            end = "the step is skipped" + (", and the groups are carried over to the next one" if there else "")
        else:
            end = "the step trains on these groups" if there else "there is nothing to train on"
        return (
            f"filter    step {step} has {there} of {self._per_step} groups after "
            f"{counted(rollouts, 'rollout')} of {counted(sampled, 'task')} ({went or 'none dropped'}): {end}"
        )
