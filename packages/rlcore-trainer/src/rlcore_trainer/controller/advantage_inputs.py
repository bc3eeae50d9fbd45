"""Convert a rollout to the inputs of an advantage.

Axes: ``N`` the scored trajectories, ``T`` the tokens written by the policy, padded on the right.
"""

from __future__ import annotations

from torch import Tensor

from rlcore_trainer.algorithms.interface import AdvantageInputs
from rlcore_trainer.batching.experience import Experience


def advantage_inputs(
    experience: Experience,
    *,
    penalties_NT: Tensor | None,
    values_NT: Tensor | None,
    bootstrap_N: Tensor | None = None,
    baselines: bool,
) -> AdvantageInputs:
    """Return the inputs of an advantage.

    Args:
        experience: the rollout
        penalties_NT: amount that a KL term in the reward subtracts from each token; None without such a term
        values_NT: values of the critic; None without a critic
        bootstrap_N: values of the critic of the states in which trajectories were cut short; None without a critic
        baselines: whether greedy answers were sampled
    """
    rewards_N = experience.rewards_N
    return AdvantageInputs(
        rewards_N=rewards_N if penalties_NT is None else rewards_N - penalties_NT.sum(1),
        groups_N=experience.groups_N,
        lengths_N=experience.lengths_N,
        mask_NT=experience.mask_NT,
        rewards_NT=experience.token_rewards(penalties_NT),
        turns_NT=experience.turns_NT,
        values_NT=values_NT,
        bootstrap_N=bootstrap_N,
        baselines_N=experience.baselines_N if baselines else None,
    )
