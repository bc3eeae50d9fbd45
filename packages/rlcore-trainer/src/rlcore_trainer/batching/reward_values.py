"""The values of the single rewards of trajectories, for advantages that do not use their sum alone.

Axes: ``N`` trajectories; ``R`` the rewards with a weight, by name, and a last column for what else counts as reward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from rlcore.episodes.scoring import reward_names
from rlcore.types import Trajectory
from torch import Tensor

if TYPE_CHECKING:
    from rlcore.config.resolved import ResolvedEnvironment

RewardWeights = Mapping[str, Mapping[str, float]]
"""The weight of each reward by its name in a trajectory, for each environment by its name in tasks."""


def reward_weights(environments: Iterable[ResolvedEnvironment]) -> RewardWeights:
    """Return the weights of the rewards of a run."""
    return {
        one.name: dict(
            zip(reward_names([table.id for table in one.rewards]), (table.weight for table in one.rewards), strict=True)
        )
        for one in environments
    }


def reward_values(
    trajectories: Sequence[Trajectory], environments: Sequence[str], weights: RewardWeights
) -> tuple[Tensor, Tensor]:
    """Return the value and the weight of each reward ``[N, R]``, float64.

    The last column is what the score contains besides them, exactly 0 if nothing.

    Args:
        trajectories: scored trajectories
        environments: the name of the environment of each trajectory
        weights: of the run; a reward of weight 0 is a metric, and its value may be missing
    """
    names = sorted({name for of in weights.values() for name, weight in of.items() if weight})
    values_NR = torch.zeros(len(trajectories), len(names) + 1, dtype=torch.float64)
    weights_NR = torch.zeros_like(values_NR)
    weights_NR[:, -1] = 1.0
    for i, (trajectory, environment) in enumerate(zip(trajectories, environments, strict=True)):
        total = 0.0
        for name, weight in weights.get(environment, {}).items():  # in the order in which the score was summed
            result = trajectory.rewards.get(name)
            if weight and result is not None and result.value is not None:
                k = names.index(name)
                values_NR[i, k], weights_NR[i, k] = result.value, weight
                total += weight * result.value
        values_NR[i, -1] = (trajectory.reward or 0.0) - total
    return values_NR, weights_NR
