"""``reinforce-plus-plus``: discounted returns, whitened over the rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from rlcore.config.schema import Table

from rlcore_trainer.algorithms.interface import AdvantageInputs, AdvantageOutput, AdvantageTraits

if TYPE_CHECKING:
    from torch import Tensor


def reinforce_plus_plus(
    rewards_NT: Tensor, mask_NT: Tensor, *, gamma: float = 1.0, whiten: bool = True
) -> tuple[Tensor, dict[str, float]]:
    """Return the whitened discounted return from each token (Hu et al. 2025, REINFORCE++, arXiv 2501.03262).

    ``A_t = Σ_{k≥t} γ^{k−t} r_k``. No groups are needed: the baseline is the mean over the rollout's tokens.

    Args:
        rewards_NT: finite rewards of each token
        mask_NT: bool, True for tokens that the policy wrote
        gamma: discount from one written token to the next
        whiten: subtract the mean over the rollout and divide by its standard deviation
    """
    from rlcore_trainer.algorithms.advantages.scan import lambda_advantages
    from rlcore_trainer.algorithms.advantages.statistics import whiten_tokens_

    advantages_NT = lambda_advantages(rewards_NT, None, mask_NT, gamma, 1.0)
    return advantages_NT, whiten_tokens_(advantages_NT, mask_NT) if whiten else {}


class ReinforcePlusPlus:
    """The `reinforce_plus_plus` estimator as a configurable component."""

    traits = AdvantageTraits(reads_tokens=True)

    class Config(Table):
        """Keys of ``algorithm.advantage``."""

        gamma: Annotated[float, Field(ge=0, le=1)] = 1.0
        """Discount from one token that the policy wrote to the next."""
        whiten: bool = True
        """Normalise the advantages of a rollout's tokens to mean 0 and variance 1."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def __call__(self, inputs: AdvantageInputs) -> AdvantageOutput:
        """Return the advantages of a rollout."""
        gamma, whiten = self._config.gamma, self._config.whiten
        advantages_NT, metrics = reinforce_plus_plus(inputs.rewards_NT, inputs.mask_NT, gamma=gamma, whiten=whiten)
        return AdvantageOutput(advantages=advantages_NT, metrics=metrics)
