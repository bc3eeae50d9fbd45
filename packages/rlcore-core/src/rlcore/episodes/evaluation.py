"""Evaluation requests and the metrics of their groups: accuracy, rewards, stops, failures, pass@k."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlcore.types import Group, RolloutRequest, Task, Trajectory

if TYPE_CHECKING:
    from rlcore.config.schema import RunConfig


def evaluation_request(config: RunConfig, tasks: Sequence[Task]) -> RolloutRequest:
    """Return the evaluation request for these tasks.

    Its seeds are the same at every step and different from all training seeds.
    """
    table = config.evaluation
    return RolloutRequest(
        tasks=tasks,
        group_size=table.samples,
        seed=config.seed,
        step=0,
        purpose="evaluation",
        sampling={"temperature": table.temperature, "top_p": table.top_p, "top_k": table.top_k},
    )


def tasks_to_evaluate(config: RunConfig, tasks: Sequence[Task]) -> list[Task]:
    """Return the first ``evaluation.tasks`` held-out tasks of each environment; all if it is not set."""
    limit, seen, chosen = config.evaluation.tasks, Counter[str](), []
    for task in tasks:
        seen[task.environment] += 1
        if limit is None or seen[task.environment] <= limit:
            chosen.append(task)
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The metrics of an evaluation. Trajectories that are not scored are counted, but excluded from all means."""

    tasks: int
    trajectories: int
    scored: int
    solved: int
    accuracy: float | None
    """Mean over tasks of the solved fraction of scored trajectories; None when nothing is scored."""
    interval: tuple[float, float] | None
    """95 % Wilson interval of the accuracy, with tasks as the independent trials."""
    reward: float | None
    roles: Mapping[str, float]
    """Mean reward of each role; empty for episodes without roles."""
    rewards: Mapping[str, float]
    """Mean of each reward by id, over the trajectories with a value."""
    components: Mapping[str, float]
    """Mean of each component of a reward, as ``id/component``."""
    reward_errors: Mapping[str, int]
    """Number of trajectories that a reward could not score, as ``id/kind`` (`RewardResult.error_kind`)."""
    stops: Mapping[str, int]
    """Number of trajectories by `Stop`."""
    failures: Mapping[str, int]
    """Number of failures by `Boundary`."""
    not_scored: int
    pass_at_k: Mapping[int, float]
    """Probability that one of k trajectories solves a task, for k = 1, 2, 4, … up to the samples of a task."""
    tokens: float
    """Sampled tokens per trajectory. An engine that uses messages reports the number itself."""
    turns: float
    """Generations per trajectory."""
    tool_calls: float
    """Tool calls per trajectory, including unreadable ones."""
    errors: Sequence[str]
    """Up to three distinct failures."""


def summarise(groups: Sequence[Group], *, success: float = 1.0) -> Summary:
    """Compute the metrics of scored groups. A trajectory is solved when its reward is at least ``success``."""
    everything = [trajectory for group in groups for trajectory in group.trajectories]
    scored = [trajectory for trajectory in everything if trajectory.reward is not None]
    counts = []
    for group in groups:
        values = [reward for reward in group.rewards_G if reward is not None]
        if values:
            counts.append((len(values), sum(value >= success for value in values)))
    accuracy = _mean([solved / total for total, solved in counts])
    rewards: dict[str, list[float]] = {}
    components: dict[str, list[float]] = {}
    errors = Counter[str]()
    roles: dict[str, list[float]] = {}
    for trajectory in scored:
        if trajectory.role and trajectory.reward is not None:
            roles.setdefault(trajectory.role, []).append(trajectory.reward)
    for trajectory in everything:
        for id, result in trajectory.rewards.items():
            if result.value is not None:
                rewards.setdefault(id, []).append(result.value)
                for name, value in result.components.items():
                    components.setdefault(f"{id}/{name}", []).append(value)
            else:
                errors[f"{id}/{result.error_kind or 'error'}"] += 1
    messages = [[m for m in trajectory.messages if m.role == "assistant"] for trajectory in everything]
    smallest = min((total for total, _ in counts), default=0)
    powers = [2**n for n in range(smallest.bit_length()) if 2**n <= smallest]
    return Summary(
        tasks=len(groups),
        trajectories=len(everything),
        scored=len(scored),
        solved=sum(solved for _, solved in counts),
        accuracy=accuracy,
        interval=wilson(accuracy, len(counts)) if accuracy is not None else None,
        reward=_mean([t.reward for t in scored if t.reward is not None]),
        roles={role: sum(values) / len(values) for role, values in sorted(roles.items())},
        rewards={id: sum(values) / len(values) for id, values in rewards.items()},
        components={name: sum(values) / len(values) for name, values in components.items()},
        reward_errors=dict(errors.most_common()),
        stops=dict(Counter(str(t.stop) for t in everything).most_common()),
        failures=dict(Counter(str(t.failure.boundary) for t in everything if t.failure).most_common()),
        not_scored=len(everything) - len(scored),
        pass_at_k={k: _mean([pass_at_k(total, solved, k) for total, solved in counts]) or 0.0 for k in powers},
        tokens=_mean([t.metrics.get("completion_tokens", float(t.sampled_tokens)) for t in everything]) or 0.0,
        turns=_mean([float(sum(turn.kind == "policy" for turn in t.turns)) for t in everything]) or 0.0,
        tool_calls=_mean([float(sum(len(m.tool_calls) for m in written)) for written in messages]) or 0.0,
        errors=list(dict.fromkeys(str(t.failure) for t in everything if t.failure))[:3],
    )


def distinct(groups: Iterable[Group]) -> Iterator[tuple[Task, Trajectory]]:
    """Yield the trajectories of groups with their tasks, in order. One that is repeated counts once."""
    seen: set[tuple[str, int]] = set()
    for group in groups:
        for trajectory in group.trajectories:
            key = group.task.key, trajectory.sibling
            if key not in seen:
                seen.add(key)
                yield group.task, trajectory


def by_environment(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Return the groups by the name of their environment; empty for a run with only one."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        if group.task.environment:
            found.setdefault(group.task.environment, []).append(group)
    return found


def summaries_of(groups: Sequence[Group], *, success: float = 1.0) -> dict[str, Summary]:
    """Return the metrics of each environment by name; empty for a run with only one."""
    return {name: summarise(part, success=success) for name, part in by_environment(groups).items()}


def wilson(proportion: float, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the score interval of a proportion (Wilson 1927). It stays within 0 … 1 and is valid at 0 and 1."""
    if trials <= 0:
        return 0.0, 1.0
    denominator = 1 + z * z / trials
    centre = (proportion + z * z / (2 * trials)) / denominator
    half = z / denominator * math.sqrt(proportion * (1 - proportion) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


def pass_at_k(total: int, solved: int, k: int) -> float:
    """Return the unbiased estimate 1 − C(n−c, k) / C(n, k) (Chen et al. 2021, equation 1)."""
    return 1.0 - math.comb(total - solved, k) / math.comb(total, k)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
