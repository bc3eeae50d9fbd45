"""Stored trajectories, judged again: by which rewards, and what became of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import Field

from rlcore.config.layers import Layer, merge_layers, override_layers
from rlcore.config.resolve import resolve_rewards
from rlcore.config.schema import EvaluationTable, RolloutTable, Table
from rlcore.errors import UserError
from rlcore.evaluation import wilson
from rlcore.registry import Registry
from rlcore.run import SelectedReward, select_rewards
from rlcore.scoring import Scorer, unscored
from rlcore.types import Group

GROUPS_AT_ONCE = 64
"""Groups that are judged at a time; the calls of a slow judge overlap within them."""
STATES = ("solved", "not solved", "not scored")


class _Evaluation(Table):
    success: float = EvaluationTable().success


class _Rollout(Table):
    reward_timeout_s: float = Field(default=RolloutTable().reward_timeout_s, gt=0)


class _Options(Table):
    """What may be set besides the rewards."""

    evaluation: _Evaluation = _Evaluation()
    rollout: _Rollout = _Rollout()
    out: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to judge."""

    rewards: tuple[SelectedReward, ...]
    success: float
    """A trajectory counts as solved when its reward is at least this."""
    timeout_s: float
    """Deadline of one reward, in seconds."""
    out: Path | None
    """Folder for the rescored records; None writes none."""


def plan(base: Layer | None, words: Sequence[str], registry: Registry) -> Plan:
    """The run's own rewards with the words on top; ``reward.N.id=…`` at the next free place adds one.

    A word that gives a table another id starts that table anew: the old reward's options are not the new one's.

    Raises:
        ConfigError: every mistake in the words.
    """
    layers = override_layers(words)
    tree: dict[str, Any] = {"reward": _tables(base, layers)}
    for table, keys in (("evaluation", _Evaluation), ("rollout", _Rollout)):
        known = base.tree.get(table, {}) if base is not None else {}
        tree[table] = {key: value for key, value in known.items() if key in keys.model_fields}
    merged = merge_layers([Layer(tree=tree, origins=base.origins if base is not None else {}), *layers])
    found = resolve_rewards(merged, registry, _Options)
    if not found.tables:
        raise UserError("no reward says how to judge", mend="give reward.0.id=ID")
    return Plan(
        rewards=select_rewards(registry, found.tables, found.options),
        success=found.others.evaluation.success,
        timeout_s=found.others.rollout.reward_timeout_s,
        out=found.others.out.expanduser() if found.others.out is not None else None,
    )


def _tables(base: Layer | None, layers: Iterable[Layer]) -> list[dict[str, Any]]:
    """The run's reward tables, made ready for words that name other rewards."""
    tables = [dict(table) for table in base.tree.get("reward", ())] if base is not None else []
    for layer in layers:
        words = layer.tree.get("reward")
        for place, table in words.items() if isinstance(words, Mapping) else ():
            if not place.isdecimal() or not isinstance(table, Mapping) or "id" not in table:
                continue
            number = int(place)
            if number == len(tables):
                tables.append({"id": table["id"]})
            elif number < len(tables) and tables[number].get("id") != table["id"]:
                tables[number] = {"id": table["id"], "weight": tables[number].get("weight", 1.0)}
    return tables


def rescored(groups: Iterable[Group], how: Plan) -> Iterator[tuple[Group, Group]]:
    """Each group as it was and as it is judged now, in order. What was never finished stays not scored."""
    groups = iter(groups)
    with asyncio.Runner() as runner:
        scorer = Scorer(how.rewards, timeout_s=how.timeout_s)
        while before := list(islice(groups, GROUPS_AT_ONCE)):
            yield from zip(before, runner.run(_judge(scorer, before)), strict=True)


async def _judge(scorer: Scorer, groups: Sequence[Group]) -> list[Group]:
    async def judge(group: Group) -> Group:
        clean = (unscored(trajectory) for trajectory in group.trajectories)
        trajectories = await asyncio.gather(*(scorer.judge(trajectory, group.task) for trajectory in clean))
        return await scorer.settle(Group(task=group.task, trajectories=tuple(trajectories)))

    return await asyncio.gather(*map(judge, groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The numbers before, or now."""

    scored: int
    mean: float | None
    """Mean reward of what is scored."""
    solved: float | None
    """Mean over tasks of the solved fraction of their scored trajectories."""
    interval: tuple[float, float] | None
    """95 % Wilson interval of ``solved``, with tasks as the independent trials; None where a task stands twice."""


@dataclass(slots=True, kw_only=True)
class Comparison:
    """What became of the trajectories of one file: those of one policy, such as of the evaluation after step 20."""

    success: float
    groups: list[tuple[tuple[float | None, ...], tuple[float | None, ...]]] = field(default_factory=list)
    """Rewards of each group, before and now."""
    tasks: set[str] = field(default_factory=set)
    """Ids of the groups' tasks."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why trajectories are not scored now."""

    def add(self, before: Group, now: Group) -> None:
        """Count one group."""
        self.groups.append((before.rewards_G, now.rewards_G))
        self.tasks.add(before.task.id)
        missing = (trajectory for trajectory in now.trajectories if trajectory.reward is None)
        self.reasons.update(f"{one.end_reason}: {one.error or 'no reason was stored'}" for one in missing)

    @property
    def before(self) -> Side:
        """As it was stored."""
        return self._side([before for before, _ in self.groups])

    @property
    def now(self) -> Side:
        """As it is judged now."""
        return self._side([now for _, now in self.groups])

    @property
    def pairs(self) -> list[tuple[float | None, float | None]]:
        """Reward before and now, of every trajectory."""
        return [pair for before, now in self.groups for pair in zip(before, now, strict=True)]

    @property
    def changed(self) -> int:
        """How many trajectories have another reward, or have one or none instead."""
        return sum(before != now for before, now in self.pairs)

    @property
    def confusion(self) -> Counter[tuple[str, str]]:
        """Count by the state before and the state now; the states are `STATES`."""
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
