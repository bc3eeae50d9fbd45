"""Stored trajectories, scored again: the rewards to use, and a comparison with the stored scores."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import Field

from rlcore.config.layers import Layer, override_layers
from rlcore.config.resolve import resolve_rewards
from rlcore.config.schema import EvaluationTable, RolloutTable, Table
from rlcore.episodes.evaluation import wilson
from rlcore.episodes.rewards import SelectedReward, raise_refusal, select_rewards
from rlcore.episodes.scoring import Scorer
from rlcore.errors import DataError, UserError
from rlcore.event_loop import EventLoop
from rlcore.plugins.registry import Registry
from rlcore.types import Boundary, Group, Trajectory

GROUPS_AT_ONCE = 64
"""Number of groups scored at a time. The calls of slow rewards overlap within them."""
STATES = ("solved", "not solved", "not scored")


class _Evaluation(Table):
    success: float = EvaluationTable().success


class _Rollout(Table):
    reward_timeout_s: float = Field(default=RolloutTable().reward_timeout_s, gt=0)


class _Options(Table):
    """Options besides the rewards."""

    evaluation: _Evaluation = _Evaluation()
    rollout: _Rollout = _Rollout()
    out: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to score."""

    rewards: Mapping[str, tuple[SelectedReward, ...]]
    """The rewards by the name of the environment; the only one of a run has an empty name."""
    success: float
    """A trajectory counts as solved when its reward is at least this."""
    timeout_s: float
    """Deadline of one reward, in seconds."""
    out: Path | None
    """Folder for the rescored records; None writes none."""


def plan(base: Layer | None, words: Sequence[str], registry: Registry) -> Plan:
    """The rewards of the run with overrides applied; ``reward.N.id=…`` at the next free index adds one.

    An override that changes the id of a table replaces the whole table, because the options belong to the old reward.

    Raises:
        ConfigError: lists every error in the overrides.
    """
    given = base.tree if base is not None else {}
    tree: dict[str, Any] = {"reward": given.get("reward", [])}
    if isinstance(several := given.get("environment"), list):
        tree = {"environment": [{key: one[key] for key in ("id", "name", "reward") if key in one} for one in several]}
    for table, keys in (("evaluation", _Evaluation), ("rollout", _Rollout)):
        known = given.get(table, {})
        tree[table] = {key: value for key, value in known.items() if key in keys.model_fields}
    kept = Layer(tree=tree, origins=base.origins if base is not None else {})
    found = resolve_rewards([kept, *override_layers(words)], registry, _Options)
    if not all(tables for tables, _ in found.environments.values()):
        raise UserError("no reward is configured", fix="set reward.0.id=ID")
    timeout_s = found.others.rollout.reward_timeout_s
    return Plan(
        rewards={
            name: select_rewards(registry, *pair, timeout_s=timeout_s) for name, pair in found.environments.items()
        },
        success=found.others.evaluation.success,
        timeout_s=timeout_s,
        out=found.others.out.expanduser() if found.others.out is not None else None,
    )


def rescored(groups: Iterable[Group], how: Plan) -> Iterator[tuple[Group, Group]]:
    """Each group as stored and as scored now, in order. A failed episode stays not scored.

    Raises:
        UserError: the service of a reward can answer no further call.
    """
    groups = iter(groups)
    rewards = [reward for selected in how.rewards.values() for reward in selected]
    with EventLoop() as loop:
        scorers = {name: Scorer(rewards, timeout_s=how.timeout_s) for name, rewards in how.rewards.items()}
        while before := list(islice(groups, GROUPS_AT_ONCE)):
            try:
                now = loop.run(_score(scorers, before))
                raise_refusal(rewards, (trajectory for group in now for trajectory in group.trajectories))
            finally:
                for reward in rewards:
                    loop.run(reward.close())
            yield from zip(before, now, strict=True)


async def _score(scorers: Mapping[str, Scorer], groups: Sequence[Group]) -> list[Group]:
    async def score(group: Group) -> Group:
        scorer = scorers.get(group.task.environment) or scorers.get("")
        if scorer is None:
            raise DataError(
                f"the task {group.task.id!r} is of an environment without rewards",
                found=group.task.environment or "no environment",
                fix=f"the run has the environments {', '.join(scorers)}; move the file to a folder of its own",
            )
        clean = (_without_rewards(trajectory) for trajectory in group.trajectories)
        trajectories = await asyncio.gather(*(scorer.score(trajectory, group.task) for trajectory in clean))
        return await scorer.settle(Group(task=group.task, trajectories=tuple(trajectories)))

    return await asyncio.gather(*map(score, groups))


def _without_rewards(trajectory: Trajectory) -> Trajectory:
    """The trajectory without its reward results and without a failure of a reward."""
    failed = trajectory.failure is not None and trajectory.failure.boundary is Boundary.REWARD
    return trajectory.replace(failure=None if failed else trajectory.failure, rewards={}, reward=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The statistics before, or now."""

    scored: int
    mean: float | None
    """Mean reward of the scored trajectories."""
    solved: float | None
    """Mean over tasks of the solved fraction of their scored trajectories."""
    interval: tuple[float, float] | None
    """95 % Wilson interval of ``solved``, with tasks as independent trials; None if a task occurs twice."""


@dataclass(slots=True, kw_only=True)
class Comparison:
    """The comparison for one file: trajectories of one policy, such as those of the evaluation after step 20."""

    success: float
    groups: list[tuple[tuple[float | None, ...], tuple[float | None, ...]]] = field(default_factory=list)
    """Rewards of each group, before and now."""
    tasks: set[str] = field(default_factory=set)
    """Ids of the groups' tasks."""
    reasons: Counter[str] = field(default_factory=Counter)
    """The reasons why trajectories are not scored now."""

    def add(self, before: Group, now: Group) -> None:
        """Add one group."""
        self.groups.append((before.rewards_G, now.rewards_G))
        self.tasks.add(before.task.key)
        missing = (trajectory for trajectory in now.trajectories if trajectory.reward is None)
        self.reasons.update(str(one.failure or one.stop) for one in missing)

    @property
    def before(self) -> Side:
        """The stored results."""
        return self._side([before for before, _ in self.groups])

    @property
    def now(self) -> Side:
        """The new results."""
        return self._side([now for _, now in self.groups])

    @property
    def pairs(self) -> list[tuple[float | None, float | None]]:
        """The rewards before and now, for every trajectory."""
        return [pair for before, now in self.groups for pair in zip(before, now, strict=True)]

    @property
    def changed(self) -> int:
        """Number of trajectories with a different reward, including those that gained or lost one."""
        return sum(before != now for before, now in self.pairs)

    @property
    def confusion(self) -> Counter[tuple[str, str]]:
        """Number of trajectories by the states before and now, from `STATES`."""
        return Counter((self._state(before), self._state(now)) for before, now in self.pairs)

    def _state(self, reward: float | None) -> str:
        return "not scored" if reward is None else "solved" if reward >= self.success else "not solved"

    def _side(self, groups: Sequence[tuple[float | None, ...]]) -> Side:
        scored = [values for group in groups if (values := [value for value in group if value is not None])]
        values = [value for group in scored for value in group]
        fractions = [sum(value >= self.success for value in group) / len(group) for group in scored]
        solved = sum(fractions) / len(fractions) if fractions else None
        independent = len(self.tasks) == len(self.groups)
        return Side(
            scored=len(values),
            mean=sum(values) / len(values) if values else None,
            solved=solved,
            interval=wilson(solved, len(fractions)) if solved is not None and independent else None,
        )
