"""What a collector decides: which tasks are drawn, which groups are kept, and which of them a step trains on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rlcore.config.schema import EnvironmentTable
from rlcore.console.wording import counted
from rlcore.types import Group, Task

from rlcore_trainer.algorithms.config import FilterConfig
from rlcore_trainer.batching.curriculum import after_rollout
from rlcore_trainer.batching.filtering import REASONS, Reason, excluding, spread, verdict
from rlcore_trainer.batching.mixture import Drawn, Mixture, MixtureState, Part
from rlcore_trainer.config import CurriculumConfig, PolicyGradientConfig
from rlcore_trainer.controller.collector_state import CollectorState, Waiting, from_json

MAX_AGE = 2
"""Steps beyond ``schedule.ahead`` after which a sampled group is too old by default."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a sampled group."""

    kind: Literal["kept", "dropped", "carried"]
    """Trained in its step, not trained at all, or left for a later step."""
    why: Reason | Literal["surplus", "age", ""] = ""
    """Why it was dropped: the reason of the filter, more groups than a step and the next one need, or
    ``schedule.max_age``."""
    excluded: tuple[int, ...] = ()
    """Siblings that count as not scored because of the reason why they stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The groups of a step."""

    groups: Sequence[Group]
    """The groups to train on, oldest first; empty if the step is skipped."""
    sampled: Sequence[Group]
    """All groups sampled in the step; empty if the carried groups were enough."""
    metrics: Mapping[str, float]
    """``mixture/…``, ``curriculum/…`` and ``filter/…`` metrics, if these are used."""
    epoch: int
    """The epoch of the last drawn task, starting from 0; of several environments, the earliest one."""
    fates: Sequence[Fate]
    """What became of each sampled group."""
    origins: Sequence[tuple[int, int]]
    """The step in which each group to train on was sampled, and its number among the groups of that step."""
    warning: str | None = None
    """A warning for the log if the step has too few groups."""


class SortedGroups:
    """The groups of a step in progress: which can be trained on, and why others are dropped.

    Args:
        filter: the filter
        success: minimum reward of a correct trajectory
        step: the step
        brought: groups of earlier steps, without those that are too old

    Attributes:
        pool: the groups that can be trained on
        sampled: the groups of this step, as they were sampled
    """

    def __init__(self, filter: FilterConfig, success: float, step: int, brought: Sequence[Waiting]) -> None:
        self._filter, self._success, self._step, self._brought = filter, success, step, len(brought)
        self.pool = list(brought)
        self.sampled: list[Group] = []
        self.reasons = Counter[Reason | Literal["age"]]()
        self.excluded = Counter[str]()
        self._fates: list[Fate] = []

    @property
    def kept(self) -> int:
        """Number of groups of this step that can be trained on."""
        return len(self.pool) - self._brought

    def add(self, groups: Sequence[Group], *, born: int, too_old: bool = False, all: bool = False) -> Sequence[Group]:
        """Add sampled groups, and return them with excluded trajectories as not scored.

        Args:
            groups: the groups
            born: number of steps that were trained when they were sampled
            too_old: whether they are too old to train on
            all: keep all of them, without a filter
        """
        left, counts = excluding(groups, self._filter.exclude)
        self.excluded += counts
        for place, (whole, group) in enumerate(zip(groups, left, strict=True), start=len(self.sampled)):
            metric, score = self._filter.metric, self._filter.score
            why = "age" if too_old else None if all else verdict(group, metric, self._success, score)
            self._fates.append(Fate("dropped" if why else "kept", why or "", _excluded(whole, group)))
            if why is None:
                self.pool.append(Waiting(group, born, self._step, place))
            else:
                self.reasons[why] += 1
        self.sampled += groups
        return left

    def fates(self, chosen: Sequence[Waiting], carried: Sequence[Waiting]) -> Sequence[Fate]:
        """Return what became of each sampled group, given the groups to train on and to carry over."""
        later, now = {id(waiting) for waiting in carried}, {id(waiting) for waiting in chosen}
        for waiting in self.pool:
            if waiting.step == self._step and id(waiting) not in now:
                fate = Fate("carried") if id(waiting) in later else Fate("dropped", "surplus")
                self._fates[waiting.place] = replace(fate, excluded=self._fates[waiting.place].excluded)
        return self._fates

    def metrics(self, *, before: int, chosen: int, carried: int, per_step: int) -> dict[str, int]:
        """Return the metrics ``filter/…``, given the numbers of groups that were carried to this step, and go on."""
        return {
            "kept": self.kept,
            "dropped": sum(self.reasons[reason] for reason in REASONS),
            **{reason: self.reasons[reason] for reason in REASONS},
            "carried_in": before,
            "carried_out": carried,
            "stale": before - self._brought,
            "discarded": len(self.pool) - chosen - carried,
            "short": len(self.pool) < per_step,
            **self.excluded_metric(),
        }

    def excluded_metric(self) -> dict[str, int]:
        """Return the number of excluded trajectories, if any are excluded."""
        return {"excluded": self.excluded.total()} if self._filter.exclude else {}


class Selection:
    """Draws tasks and chooses groups; the base of the collectors.

    Args:
        tasks: the training tasks
        trainer: provides the number of groups per step
        filter: the filter, oversampling and the action when too few groups remain
        group_size: trajectories per task
        seed: seed of the run; together with the rollout number, it keys all randomness
        success: minimum reward of a correct trajectory
        environments: the environments of the tasks, if there are several
        curriculum: which tasks rest because of their success
        max_age: steps after which a sampled group is too old to train on

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
        environments: Sequence[EnvironmentTable] = (),
        curriculum: CurriculumConfig | None = None,
        max_age: int = MAX_AGE,
    ) -> None:
        self._tasks, self._filter, self._per_step = tasks, filter, trainer.tasks_per_step
        self._group_size, self._seed, self._success = group_size, seed, success
        self._environments, self._curriculum = environments, curriculum or CurriculumConfig()
        self._max_age = max_age
        self._room = self._per_step * (1 + math.ceil(filter.oversample))
        """Number of groups of a step that are trained or carried over."""
        self._order_seed = seed if trainer.shuffle else None
        parts = [
            Part(name=one.name, tasks=[task for task in tasks if task.environment == one.name], weight_at=one.weight_at)
            for one in environments
        ]
        self._mixture = Mixture(parts or [Part(name="", tasks=tasks)], seed=self._order_seed, per_step=self._per_step)
        self._between: CollectorState | None = None
        self._before: CollectorState | None = None
        self._step = 0

    @property
    def dynamic(self) -> bool:
        """Whether dynamic sampling is enabled, so that a step may differ from one rollout of its tasks."""
        return self._filter.metric != "none" or self._filter.oversample > 1

    def state(self, step: int | None = None) -> dict[str, Any]:
        """Return the state for `restore` as plain JSON values; empty before the first step.

        Args:
            step: the last completed step, which may be the one before the last collected step if that step was
                interrupted before its update
        """
        between = self._between if step is None or step >= self._step else self._before
        return between.to_json() if between is not None else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state`. If the number of tasks of an environment has changed, it begins a new epoch.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the state is malformed.
        """
        self._between = self._before = None
        self._step = 0
        if state:
            between = from_json(state)
            self._between = replace(between, drawn=self._mixture.resumed(between.drawn))

    def _start(self, step: int) -> CollectorState:
        """The state before a step without earlier ones."""
        return CollectorState(drawn=self._mixture.start(), batch=step - 1)

    def _measured(self, drawn: Drawn, groups: Sequence[Group]) -> MixtureState:
        """The state after a rollout, in which tasks outside the band of the curriculum rest."""
        return after_rollout(drawn, groups, self._curriculum, self._success)

    def _metrics(self, sampled: Sequence[Group], state: MixtureState) -> dict[str, float]:
        counts = Counter(group.task.environment for group in sampled)
        metrics = {f"mixture/{one.name}": float(counts[one.name]) for one in self._environments}
        if self._curriculum.success is not None:
            epochs = {name: one.cursor.epoch for name, one in state.items()}
            resting = [epoch > epochs[name] for name, one in state.items() for epoch in one.resting.values()]
            metrics["curriculum/resting"] = float(sum(resting))
        return metrics

    def _oversampled(self, count: int) -> int:
        return math.ceil(round(count * self._filter.oversample, 9))  # 50 × 1.1 is slightly larger than 55

    def _choose(self, pool: Sequence[Waiting]) -> tuple[list[Waiting], list[Waiting]]:
        """Return the groups to train on and the groups to carry over, both oldest first."""
        if len(pool) < self._per_step and self._filter.when_short == "skip":
            return [], list(pool)
        order = list(range(len(pool)))
        if self._filter.rank_by_std:
            order.sort(key=lambda index: -spread(pool[index].group))
        chosen, carried = order[: self._per_step], order[self._per_step : self._room]
        return [pool[index] for index in sorted(chosen)], [pool[index] for index in sorted(carried)]

    def _collected(
        self,
        groups: SortedGroups,
        chosen: Sequence[Waiting],
        carried: Sequence[Waiting],
        *,
        before: CollectorState,
        state: MixtureState,
        metrics: Mapping[str, float],
        warning: str | None = None,
    ) -> Collected:
        """The groups of a step, with its metrics besides those given."""
        counts = {"before": len(before.carried), "chosen": len(chosen), "carried": len(carried)}
        filtered = groups.metrics(**counts, per_step=self._per_step) if self.dynamic else groups.excluded_metric()
        return Collected(
            groups=[waiting.group for waiting in chosen],
            sampled=groups.sampled,
            metrics={
                **self._metrics(groups.sampled, state),
                **{f"filter/{name}": float(value) for name, value in filtered.items()},
                **metrics,
            },
            epoch=_epoch(state),
            fates=groups.fates(chosen, carried),
            origins=[(waiting.step, waiting.place) for waiting in chosen],
            warning=warning,
        )

    def _warning(self, step: int, groups: SortedGroups, rollouts: str) -> str | None:
        """Return a warning if a step has too few groups after ``rollouts``."""
        there = len(groups.pool)
        if there >= self._per_step:
            return None
        went = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in groups.reasons.most_common())
        why = [went or "none dropped"]
        why += [f"{counted(count, 'trajectory')} excluded: {stop}" for stop, count in groups.excluded.most_common()]
        if self._filter.when_short == "skip":
            end = "the step is skipped" + (", and the groups are carried over to the next one" if there else "")
        else:
            end = "the step trains on these groups" if there else "there is nothing to train on"
        return (
            f"filter    step {step} has {there} of {self._per_step} groups after {rollouts} ({'; '.join(why)}): {end}"
        )


def _excluded(whole: Group, left: Group) -> tuple[int, ...]:
    """The siblings that are not scored only since trajectories were excluded."""
    pairs = zip(whole.trajectories, left.trajectories, strict=True)
    return tuple(one.sibling for one, other in pairs if one.reward is not None and other.reward is None)


def _epoch(state: MixtureState) -> int:
    """The earliest epoch of the environments."""
    return min(one.cursor.epoch for one in state.values())
