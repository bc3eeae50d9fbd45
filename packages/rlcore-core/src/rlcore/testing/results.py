"""Selects and calls rewards in the same way as a run, but propagates exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from numbers import Real
from typing import Any

from rlcore.episodes.context import EpisodeContext
from rlcore.episodes.rewards import SelectedReward
from rlcore.plugins.registry import Registry
from rlcore.specs import RewardSpec
from rlcore.testing.calling import call
from rlcore.testing.components import component
from rlcore.types import Group, RewardResult, Task, Trajectory
from rlcore.types.checking import flaw_in_numbers


def select_reward(id: str, options: Mapping[str, Any] | None = None) -> SelectedReward:
    """Return the reward with this id, as a run selects it, with weight 1."""
    registry = Registry()
    spec = registry.spec("reward", id)
    assert isinstance(spec, RewardSpec)
    return SelectedReward(
        id=id,
        weight=1.0,
        scope=spec.scope,
        function=component(registry, "reward", id, options)(),
        minimum=spec.minimum,
        maximum=spec.maximum,
        rewards_silence=spec.rewards_silence,
    )


async def value_of(
    reward: SelectedReward, trajectory: Trajectory, task: Task, context: EpisodeContext | None = None
) -> float | None:
    """Return the value of the reward, or None if it is *not scored*. Exceptions propagate.

    Without a context, the reward receives a new one.
    """
    if context is None:
        with closing(EpisodeContext(task, sibling=trajectory.sibling)) as context:
            return await value_of(reward, trajectory, task, context)
    declared = {"context": context} if reward.takes_context else {}
    if reward.scope == "group":
        group = Group(task=task, trajectories=(trajectory,))
        (answer,) = await call(reward.function, group, threaded=True, **declared)
    else:
        answer = await call(reward.function, trajectory, task, threaded=True, **declared)
    value = answer.value if isinstance(answer, RewardResult) else answer
    if isinstance(answer, RewardResult):
        if flaw := flaw_in_numbers(answer.components, "components"):
            raise TypeError(f"a reward returned {flaw}")
        if answer.error is not None and not isinstance(answer.error, str):
            raise TypeError(f"a reward returned an error of type {type(answer.error).__name__}")
    if value is None:
        if not isinstance(answer, RewardResult) or not answer.error:
            raise TypeError("a result without a value needs an error: RewardResult(value=None, error=…)")
        return None
    if not isinstance(value, Real):
        raise TypeError(f"a reward must return a number or a RewardResult, not a {type(value).__name__}")
    return float(value)
