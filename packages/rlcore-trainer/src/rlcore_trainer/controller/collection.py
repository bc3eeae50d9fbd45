"""Collect the groups that a step trains on: mixtures of environments, the curriculum and dynamic sampling.

Without a filter or oversampling, a step is one rollout of its tasks. With either, rollouts are requested until enough
groups remain or the maximum number of rollouts is reached. Surplus groups are carried over to the next step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rlcore.config.schema import EnvironmentTable
from rlcore.console.wording import counted
from rlcore.types import Group, RolloutRequest, Task

from rlcore_trainer.algorithms.config import FilterConfig
from rlcore_trainer.batching.curriculum import after_rollout
from rlcore_trainer.batching.filtering import REASONS, Reason, check_score, excluding, spread, verdict
from rlcore_trainer.batching.mixture import Drawn, Mixture, MixtureState, Part
from rlcore_trainer.config import CurriculumConfig, PolicyGradientConfig
from rlcore_trainer.controller.collector_state import CollectorState, Waiting, from_json

MAX_AGE = 2
"""Maximum age of a carried group, in training steps; older groups are dropped."""


Sample = Callable[[RolloutRequest], Sequence[Group] | None]
"""Returns the scored groups of a request, or None if a stop interrupted it and the step must be discarded."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a sampled group."""

    kind: Literal["kept", "dropped", "carried"]
    """Trained in its step, not trained at all, or left for a later step."""
    why: Reason | Literal["surplus", ""] = ""
    """Why it was dropped: the reason of the filter, or more groups than a step and the next one need."""
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


class Collector:
    """Collects the groups of each step.

    Args:
        tasks: the training tasks
        trainer: provides the number of groups per step
        filter: the filter, oversampling and the action when too few groups remain
        group_size: trajectories per task
        seed: seed of the run; together with the rollout number, it keys all randomness
        success: minimum reward of a correct trajectory
        environments: the environments of the tasks, if there are several
        curriculum: which tasks rest because of their success

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
    ) -> None:
        self._tasks, self._filter, self._per_step = tasks, filter, trainer.tasks_per_step
        self._group_size, self._seed, self._success = group_size, seed, success
        self._environments, self._curriculum = environments, curriculum or CurriculumConfig()
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

    def collect(self, step: int, sample: Sample) -> Collected | None:
        """Collect the groups of a step; None if the step was interrupted, which leaves the state unchanged.

        The tasks continue where the last step ended. With dynamic sampling, rollouts are numbered consecutively, so a
        task that is drawn again uses different random numbers, and a step ends after at most ``max_extra_batches`` + 1
        rollouts, or after a rollout without any scored trajectory, because another one would likely fail in the same
        way.
        """
        return self._dynamic(step, sample) if self.dynamic else self._drawn(step, sample)

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
        left, metrics = self._left(groups)
        return Collected(
            groups=left,
            sampled=groups,
            metrics={**self._metrics(groups, state), **metrics},
            epoch=_epoch(state),
            fates=[Fate("kept", excluded=_excluded(*pair)) for pair in zip(groups, left, strict=True)],
            origins=[(step, place) for place in range(len(groups))],
        )

    def _left(self, groups: Sequence[Group]) -> tuple[Sequence[Group], dict[str, float]]:
        """The groups with excluded trajectories as not scored, and the number of these trajectories."""
        left, counts = excluding(groups, self._filter.exclude)
        return left, {"filter/excluded": float(counts.total())} if self._filter.exclude else {}

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

    def _dynamic(self, step: int, sample: Sample) -> Collected | None:
        before = self._between or self._start(step)
        state, batch = before.drawn, before.batch
        pool = [waiting for waiting in before.carried if before.trained - waiting.born <= MAX_AGE]
        brought = len(pool)
        sampled: list[Group] = []
        fates: list[Fate] = []
        reasons: Counter[Reason] = Counter()
        excluded: Counter[str] = Counter()
        for extra in range(self._filter.max_extra_batches + 1):
            count = self._more(len(pool), len(pool) - brought, len(sampled)) if extra else self._first(len(pool))
            if not count:
                break
            drawn = self._mixture.draw(state, count, step)
            batch += 1
            groups = sample(self._request(drawn.tasks, batch))
            if groups is None:
                return None
            state = self._measured(drawn, groups)
            check_score(groups, self._filter.score)
            whole = groups
            groups, counts = excluding(groups, self._filter.exclude)
            excluded += counts
            for place, group in enumerate(groups, start=len(sampled)):
                why = verdict(group, self._filter.metric, self._success, self._filter.score)
                left = _excluded(whole[place - len(sampled)], group)
                fates.append(Fate("kept" if why is None else "dropped", why or "", left))
                if why is None:
                    pool.append(Waiting(group, before.trained, step, place))
                else:
                    reasons[why] += 1
            sampled += whole
            if all(reward is None for group in groups for reward in group.rewards_G):
                break
        chosen, carried = self._choose(pool)
        later, now = {id(waiting) for waiting in carried}, {id(waiting) for waiting in chosen}
        for waiting in pool[brought:]:
            if id(waiting) not in now:
                excluded_of = fates[waiting.place].excluded
                fates[waiting.place] = (
                    Fate("carried", excluded=excluded_of)
                    if id(waiting) in later
                    else Fate("dropped", "surplus", excluded_of)
                )
        self._before, self._step = self._between, step
        self._between = CollectorState(
            drawn=state, batch=batch, trained=before.trained + bool(chosen), carried=tuple(carried)
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
            **({"excluded": excluded.total()} if self._filter.exclude else {}),
        }
        return Collected(
            groups=[waiting.group for waiting in chosen],
            sampled=sampled,
            metrics={
                **self._metrics(sampled, state),
                **{f"filter/{name}": float(value) for name, value in metrics.items()},
            },
            epoch=_epoch(state),
            fates=fates,
            origins=[(waiting.step, waiting.place) for waiting in chosen],
            warning=self._warning(step, len(pool), batch - before.batch, len(sampled), reasons, excluded)
            if short
            else None,
        )

    def _request(self, tasks: Sequence[Task], number: int) -> RolloutRequest:
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

    def _warning(
        self, step: int, there: int, rollouts: int, sampled: int, reasons: Counter[Reason], excluded: Counter[str]
    ) -> str:
        went = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in reasons.most_common())
        why = [went or "none dropped"]
        why += [f"{counted(count, 'trajectory')} excluded: {stop}" for stop, count in excluded.most_common()]
        if self._filter.when_short == "skip":
            end = "the step is skipped" + (", and the groups are carried over to the next one" if there else "")
        else:
            end = "the step trains on these groups" if there else "there is nothing to train on"
        return (
            f"filter    step {step} has {there} of {self._per_step} groups after "
            f"{counted(rollouts, 'rollout')} of {counted(sampled, 'task')} ({'; '.join(why)}): {end}"
        )


def _excluded(whole: Group, left: Group) -> tuple[int, ...]:
    """The siblings that are not scored only since trajectories were excluded."""
    pairs = zip(whole.trajectories, left.trajectories, strict=True)
    return tuple(one.sibling for one, other in pairs if one.reward is not None and other.reward is None)


def _epoch(state: MixtureState) -> int:
    """The earliest epoch of the environments."""
    return min(one.cursor.epoch for one in state.values())
