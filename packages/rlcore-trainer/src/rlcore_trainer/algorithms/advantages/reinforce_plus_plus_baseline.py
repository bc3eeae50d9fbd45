"""``reinforce-plus-plus-baseline``: reward minus group mean, whitened over the rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore.config.schema import Table

from rlcore_trainer.algorithms.advantages.dr_grpo import dr_grpo
from rlcore_trainer.algorithms.interface import AdvantageInputs, AdvantageOutput, AdvantageTraits

if TYPE_CHECKING:
    from torch import Tensor


def reinforce_plus_plus_baseline(
    rewards_N: Tensor, groups_N: Tensor, mask_NT: Tensor, *, whiten: bool = True
) -> tuple[Tensor, dict[str, float]]:
    """Return the reward minus its group mean on every token, whitened (Hu et al. 2025, arXiv 2501.03262).

    The standard deviation is computed over the rollout, not per group, so an easy group has no more weight than a hard
    one.

    Args:
        rewards_N: finite rewards
        groups_N: group label of each trajectory, integers in any order
        mask_NT: bool, True for tokens that the policy wrote
        whiten: subtract the mean over the rollout's tokens and divide by their standard deviation
    """
    from rlcore_trainer.algorithms.advantages.scan import ones_NT
    from rlcore_trainer.algorithms.advantages.statistics import whiten_rows

    advantages_N, metrics = dr_grpo(rewards_N, groups_N)
    written_NT = ones_NT(mask_NT, advantages_N.dtype)
    if whiten:
        advantages_N, before = whiten_rows(advantages_N, written_NT.sum(1))
        metrics |= before
    return written_NT.mul_(advantages_N[:, None]), metrics


class ReinforcePlusPlusBaseline:
    """The `reinforce_plus_plus_baseline` estimator as a configurable component."""

    traits = AdvantageTraits(compares_siblings=True)

    class Config(Table):
        """Keys of ``algorithm.advantage``."""

        whiten: bool = True
        """Normalise the advantages of a rollout's tokens to mean 0 and variance 1."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def __call__(self, inputs: AdvantageInputs) -> AdvantageOutput:
        """Return the advantages of a rollout."""
        advantages_NT, metrics = reinforce_plus_plus_baseline(
            inputs.rewards_N, inputs.groups_N, inputs.mask_NT, whiten=self._config.whiten
        )
        return AdvantageOutput(advantages=advantages_NT, metrics=metrics)
