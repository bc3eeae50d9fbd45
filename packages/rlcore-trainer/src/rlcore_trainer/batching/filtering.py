"""Drop groups without a learning signal, based on their rewards. A group is kept or dropped as a unit."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, get_args

from rlcore.errors import UserError
from rlcore.types import Group, Trajectory

Metric = Literal["none", "reward", "accuracy", "all-wrong"]
Reason = Literal["all_right", "all_wrong", "equal", "not_scored"]
REASONS: tuple[Reason, ...] = get_args(Reason)


def verdict(group: Group, metric: Metric, success: float, score: str | None = None) -> Reason | None:
    """Return why a group is dropped, or None if it is kept.

    The metrics compare the values of `score_of`. ``reward`` drops a group whose values are all equal. ``accuracy``
    drops a group whose trajectories are all correct or all wrong (DAPO, arXiv 2503.14476, eq. 11: 0 < correct < G), and
    ``all-wrong`` only a group that is all wrong. A trajectory is correct if its value is at least ``success``.
    Trajectories without a value are ignored. A group of several trajectories with fewer than two values is always
    dropped. A group of one has no siblings to compare with and is only dropped by ``all-wrong`` or because of a missing
    value. The roles of a group are compared separately, and the group is kept if one of them is.
    """
    reasons = [_verdict(of, metric, success, score, alone=_is_alone(group)) for of in group.roles.values()]
    return None if None in reasons else next((why for why in reasons if why != "not_scored"), "not_scored")


def _verdict(group: Group, metric: Metric, success: float, score: str | None, *, alone: bool) -> Reason | None:
    """Return the verdict on the trajectories of a role."""
    rewards = _values(group, score)
    if not rewards or (len(rewards) < 2 and not alone):
        return "not_scored"
    right = sum(reward >= success for reward in rewards)
    match metric:
        case "reward" if not alone and len(set(rewards)) == 1:
            return "equal"
        case "accuracy" if not alone and right == len(rewards):
            return "all_right"
        case "accuracy" if not alone and not right:
            return "all_wrong"
        case "all-wrong" if not right:
            return "all_wrong"
    return None


def score_of(trajectory: Trajectory, score: str | None) -> float | None:
    """Return the value that a filter compares: a reward (``ID``), a component of one (``ID/COMPONENT``), or the sum.

    None if the trajectory is not scored or has no such value.
    """
    if score is None or trajectory.reward is None:
        return trajectory.reward
    id, slash, component = score.partition("/")
    result = trajectory.rewards.get(id)
    if result is None or not slash:
        return result.value if result is not None else None
    return result.components.get(component)


def check_score(groups: Sequence[Group], score: str | None) -> None:
    """Check that a scored trajectory has the value ``algorithm.filter.score``; otherwise every group would be dropped.

    Raises:
        UserError: there are scored trajectories, and none has it.
    """
    scored = [one for group in groups for one in group.trajectories if one.reward is not None]
    if score is None or not scored or any(score_of(one, score) is not None for one in scored):
        return
    results = [item for one in scored for item in one.rewards.items()]
    found = {id for id, _ in results} | {f"{id}/{name}" for id, result in results for name in result.components}
    raise UserError(
        f"no trajectory has the value {score!r}, which the filter compares",
        found=", ".join(sorted(found)),
        where="algorithm.filter.score",
        fix="give one of these, or remove the key to compare the weighted sum",
    )


def excluding(groups: Sequence[Group], stops: Collection[str]) -> tuple[Sequence[Group], Counter[str]]:
    """Return the groups with the trajectories that stopped for these reasons as not scored, and their number by reason.

    Trajectories that were not scored anyway are not counted. Groups stay whole, and the records of the rollout keep the
    rewards.
    """
    counts = Counter[str]()

    def kept(trajectory: Trajectory) -> Trajectory:
        if trajectory.reward is None or trajectory.stop not in stops:
            return trajectory
        counts[str(trajectory.stop)] += 1
        return trajectory.replace(reward=None)

    if not stops:
        return groups, counts
    return [Group(task=group.task, trajectories=tuple(map(kept, group.trajectories))) for group in groups], counts


def spread(group: Group) -> float:
    """Return the population standard deviation of a group's rewards; exactly 0 if they are equal.

    That of a group with several roles is the largest of theirs.
    """
    return max((statistics.pstdev(_values(of, None) or [0.0]) for of in group.roles.values()), default=0.0)


def usable(groups: Iterable[Group]) -> list[Group]:
    """Return the groups with only their scored trajectories.

    Groups without a scored trajectory are omitted. In groups of several episodes, a trajectory that is the only one
    scored of its role is omitted, because it has no siblings to compare with.
    """
    kept = []
    for group in groups:
        alone = _is_alone(group)
        counts = Counter(t.role for t in group.trajectories if t.reward is not None)
        scored = tuple(t for t in group.trajectories if t.reward is not None and (alone or counts[t.role] > 1))
        if scored:
            kept.append(Group(task=group.task, trajectories=scored))
    return kept


def _is_alone(group: Group) -> bool:
    """Return whether a group is of one episode, so that no trajectory has siblings to compare with.

    All trajectories of an episode fail together.
    """
    several = {trajectory.failure is None for trajectory in group.trajectories} == {True, False}
    return not several and all(len(of.trajectories) == 1 for of in group.roles.values())


def _values(group: Group, score: str | None) -> list[float]:
    values = (score_of(trajectory, score) for trajectory in group.trajectories)
    return [value for value in values if value is not None]
