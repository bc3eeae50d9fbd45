"""``grpo``: reward minus group mean, divided by the group standard deviation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore.config.schema import Table

from rlcore_trainer.algorithms.interface import AdvantageInputs, AdvantageOutput, AdvantageTraits

if TYPE_CHECKING:
    from torch import Tensor

EPSILON = 1e-6
"""Added to a group's standard deviation before dividing by it."""


def grpo(
    rewards_N: Tensor, groups_N: Tensor, *, normalise_by_std: bool = True, epsilon: float = EPSILON
) -> tuple[Tensor, dict[str, float]]:
    """Return group-relative advantages (Shao et al. 2024, DeepSeekMath, arXiv 2402.03300, §4.1.2).

    ``A = (R − mean) / (std + 1e-6)`` with the unbiased standard deviation of the group; without ``normalise_by_std``,
    only the mean is subtracted. A group of one uses mean 0 and standard deviation 1. The advantages of a group with
    equal rewards are exactly 0; the metric ``groups/equal`` is the share of such groups.

    Args:
        rewards_N: finite rewards
        groups_N: group label of each trajectory, integers in any order
        normalise_by_std: divide by the group's standard deviation
        epsilon: added to the standard deviation
    """
    from rlcore_trainer.algorithms.advantages.statistics import GroupedRewards

    grouped = GroupedRewards(rewards_N, groups_N)
    centred_N = grouped.against(grouped.means_P())
    if not normalise_by_std:
        return centred_N, grouped.metrics()
    return centred_N / (grouped.of_each_N(grouped.spreads_P()) + epsilon), grouped.metrics()


class Grpo:
    """The `grpo` estimator as a configurable component."""

    traits = AdvantageTraits(compares_siblings=True)

    class Config(Table):
        """Keys of ``algorithm.advantage``."""

        normalise_by_std: bool = True
        """Divide a group's advantages by its standard deviation."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def __call__(self, inputs: AdvantageInputs) -> AdvantageOutput:
        """Return the advantages of a rollout."""
        advantages_N, metrics = grpo(inputs.rewards_N, inputs.groups_N, normalise_by_std=self._config.normalise_by_std)
        return AdvantageOutput(advantages=advantages_N, metrics=metrics)
