"""A curriculum by measured success: prompts outside a range of success rates rest for some passes over the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlcore.types import Group

from rlcore_trainer.batching.mixture import Drawn, MixtureState
from rlcore_trainer.config import CurriculumConfig


def success_rate(group: Group, success: float) -> float | None:
    """The fraction of scored trajectories with a reward of at least ``success``; None if none is scored."""
    rewards = [reward for reward in group.rewards_G if reward is not None]
    return sum(reward >= success for reward in rewards) / len(rewards) if rewards else None


def after_rollout(drawn: Drawn, groups: Sequence[Group], config: CurriculumConfig, success: float) -> MixtureState:
    """The state after the rollout of the drawn tasks.

    A task outside the range rests for ``config.rest`` epochs after the current one; a task within it does not rest. A
    group without scores changes nothing.
    """
    if config.success is None:
        return drawn.state
    low, high = config.success
    resting = {name: dict(one.resting) for name, one in drawn.state.items()}
    for (name, index), group in zip(drawn.places, groups, strict=True):
        rate = success_rate(group, success)
        if rate is None:
            continue
        resting[name].pop(index, None)
        if not low <= rate <= high:
            resting[name][index] = drawn.state[name].cursor.epoch + config.rest + 1
    return {name: replace(one, resting=resting[name]) for name, one in drawn.state.items()}
