"""The estimator. Axis: N, the trajectories of a rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from rlcore_trainer.algorithms import advantage

if TYPE_CHECKING:  # the configuration of a run is checked before torch is imported
    from torch import Tensor


@advantage(compares_siblings=True)
def clipped(
    rewards_N: Tensor, groups_N: Tensor, *, limit: Annotated[float, Field(gt=0)] = 1.0
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the reward minus the mean of its group, clipped to ``[-limit, limit]``, and metrics of the step.

    The parameters before ``*`` are fields of `rlcore_trainer.algorithms.AdvantageInputs`, chosen by name. Those after
    it are keys of ``[algorithm.advantage]``.

    Args:
        rewards_N: finite rewards, float64
        groups_N: group label of each trajectory, integers in any order
        limit: largest absolute advantage
    """
    siblings_NN = groups_N[:, None] == groups_N
    centred_N = rewards_N - (siblings_NN * rewards_N).sum(1) / siblings_NN.sum(1)
    clipped_N = centred_N.clamp(-limit, limit)
    return clipped_N, {"advantage/clipped": (clipped_N != centred_N).double().mean()}
