"""Dynamic sampling: from the data order to the groups that a step trains on.

Without a filter and without oversampling a step is one rollout of its tasks. With either, rollouts are asked for until
enough groups stay, at most so many; what a step does not need is carried to the next.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlcore.types import Group, RolloutRequest, Task
from rlcore.wording import counted

from rlcore_trainer.algorithm_config import FilterConfig
from rlcore_trainer.between_steps import BetweenSteps, Waiting, from_json
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.data_order import Cursor, cursor_of_step, draw, tasks_of_step
from rlcore_trainer.filtering import REASONS, Reason, sift, spread

MAX_AGE = 2
"""Steps of training that a carried group may lie behind the policy; an older one goes."""

RollOut = Callable[[RolloutRequest], Sequence[Group] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a step has to work with."""

    groups: Sequence[Group]
    """The groups to train on, the oldest first; none when the step is skipped."""
    sampled: Sequence[Group]
    """Every group that was sampled in the step; none when the carried ones were enough."""
    metrics: Mapping[str, float]
    """``filter/…``; none without dynamic sampling."""
    epoch: int
    """The epoch, from 0, of the last task that was drawn."""


class Collector:
    """Collects the groups of one step after the other.

    Args:
        tasks: the training tasks
        trainer: says how many groups a step trains on
        filter: which groups stay, how many tasks are asked for, and what happens when too few stay
        group_size: trajectories of a task
        seed: the run's; with the number of the rollout it keys everything random
        success: the reward from which a trajectory is right
        roll_out: samples and scores; None when a stop cut it short, so that the step must not count
        on_sampled: told once a step of all that was sampled in it, before the step counts; what it raises passes
            through. Not called when nothing was sampled
        say: takes a sentence for the person who watches

    Raises:
        DataError: there are fewer tasks than a step takes.
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
        roll_out: RollOut,
        on_sampled: Callable[[int, Sequence[Group]], None],
        say: Callable[[str], None],
    ) -> None:
        self._tasks, self._filter, self._per_step = tasks, filter, trainer.tasks_per_step
        self._group_size, self._seed, self._success = group_size, seed, success
        self._roll_out, self._on_sampled, self._say = roll_out, on_sampled, say
        self._between: BetweenSteps | None = None
        self._before: BetweenSteps | None = None
        self._step = 0
        cursor_of_step(1, tasks=len(tasks), per_step=self._per_step)

    @property
    def dynamic(self) -> bool:
        """Whether a step differs from one rollout of its tasks."""
        return self._filter.metric != "none" or self._filter.oversample > 1

    def collect(self, step: int) -> Collected | None:
        """The groups of a step; None when it must not count, and then as if it had not been asked for.

        Without dynamic sampling the tasks and the number of the rollout follow from the step alone. With it the tasks
        go on where the last step ended, and rollouts are numbered on, so that a task that is drawn again is sampled
        with other random numbers. A step ends after ``max_extra_batches`` + 1 rollouts at the latest, and after one of
        which no trajectory is scored: asking again would not mend what failed there.
        """
        return self._dynamic(step) if self.dynamic else self._plain(step)

    def state(self, step: int | None = None) -> dict[str, Any]:
        """What `restore` needs to go on from here, in plain JSON values; nothing without dynamic sampling.

        Args:
            step: the last step that counts, where that may be the one before the last that was collected: it ended
                before anything was learnt from it
        """
        between = self._between if step is None or step >= self._step else self._before
        if between is None or not self.dynamic:
            return {}
        return {"tasks": len(self._tasks), **between.to_json()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`; from an empty one the next step begins where a run without filter would be.

        Where the number of tasks is another one by now, an epoch of its own begins.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is not what `state` gives.
        """
        self._between = self._before = None
        self._step = 0
        if not state or not self.dynamic:
            return
        between = from_json(state)
        if state["tasks"] != len(self._tasks):
            between = replace(between, cursor=Cursor(epoch=between.cursor.epoch + 1, position=0))
        self._between = between

    def _plain(self, step: int) -> Collected | None:
        epoch, indices = tasks_of_step(step, tasks=len(self._tasks), per_step=self._per_step, seed=self._seed)
        groups = self._ask(indices, step)
        if groups is None:
            return None
        self._on_sampled(step, groups)
        return Collected(groups=groups, sampled=groups, metrics={}, epoch=epoch)

    def _dynamic(self, step: int) -> Collected | None:
        before = self._between or BetweenSteps(
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
            indices, cursor = draw(cursor, count, tasks=len(self._tasks), seed=self._seed)
            batch += 1
            groups = self._ask(indices, batch)
            if groups is None:
                return None
            sampled += groups
            kept, dropped = sift(groups, self._filter.metric, self._success)
            pool += [Waiting(group, before.trained) for group in kept]
            reasons += dropped
            if all(reward is None for group in groups for reward in group.rewards_G):
                break
        if sampled:
            self._on_sampled(step, sampled)
        chosen, carried = self._choose(pool)
        self._before, self._step = self._between, step
        self._between = BetweenSteps(
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
        if short:
            self._warn(step, len(pool), batch - before.batch, len(sampled), reasons)
        return Collected(
            groups=[waiting.group for waiting in chosen],
            sampled=sampled,
            metrics={f"filter/{name}": float(value) for name, value in metrics.items()},
            epoch=cursor.epoch,
        )

    def _ask(self, indices: Sequence[int], number: int) -> Sequence[Group] | None:
        tasks = [self._tasks[index] for index in indices]
        return self._roll_out(RolloutRequest(tasks=tasks, group_size=self._group_size, seed=self._seed, step=number))

    def _first(self, waiting: int) -> int:
        """Tasks of a step's first rollout: ranking wants a whole step's choice, however many groups are carried."""
        missing = self._per_step if self._filter.rank_by_std else max(0, self._per_step - waiting)
        return min(self._oversampled(missing), len(self._tasks))

    def _more(self, waiting: int, kept: int, sampled: int) -> int:
        """Tasks of a further rollout: as many as fill the step at the rate at which groups were kept in it.

        The rate is (kept + 1) / (sampled + 2), Laplace's, which is never 0. No rollout is larger than a whole step's.
        """
        missing = max(0, self._per_step - waiting)
        likely = -(-missing * (sampled + 2) // (kept + 1))
        return min(likely, self._oversampled(self._per_step), len(self._tasks))

    def _oversampled(self, count: int) -> int:
        return math.ceil(round(count * self._filter.oversample, 9))  # 50 × 1.1 is a little more than 55

    def _choose(self, pool: Sequence[Waiting]) -> tuple[list[Waiting], list[Waiting]]:
        """What is trained on and what is carried, each with the oldest first."""
        if len(pool) < self._per_step and self._filter.when_short == "skip":
            return [], list(pool)
        order = list(range(len(pool)))
        if self._filter.rank_by_std:
            order.sort(key=lambda index: -spread(pool[index].group))
        room = self._per_step * (1 + math.ceil(self._filter.oversample))
        chosen, carried = order[: self._per_step], order[self._per_step : room]
        return [pool[index] for index in sorted(chosen)], [pool[index] for index in sorted(carried)]

    def _warn(self, step: int, there: int, rollouts: int, sampled: int, reasons: Counter[Reason]) -> None:
        went = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in reasons.most_common())
        if self._filter.when_short == "skip":
            end = "the step is skipped" + (", and the next one begins with those" if there else "")
        else:
            end = "the step trains on those" if there else "there is nothing to train on"
        self._say(
            f"filter    step {step} has {there} of {self._per_step} groups after "
            f"{counted(rollouts, 'rollout')} of {counted(sampled, 'task')} ({went or 'none left out'}): {end}"
        )
