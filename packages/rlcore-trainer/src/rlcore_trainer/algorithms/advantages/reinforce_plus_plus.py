"""``reinforce-plus-plus``: discounted returns, whitened over the rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlcore_trainer.algorithms.configured import advantage

if TYPE_CHECKING:
    from torch import Tensor


@advantage(reads_tokens=True)
def reinforce_plus_plus(
    rewards_NT: Tensor, mask_NT: Tensor, *, gamma: Annotated[float, Field(ge=0, le=1)] = 1.0, whiten: bool = True
) -> tuple[Tensor, dict[str, float]]:
    """Return the whitened discounted return from each token (Hu et al. 2025, REINFORCE++, arXiv 2501.03262).

    ``A_t = Σ_{k≥t} γ^{k−t} r_k``. No groups are needed: the baseline is the mean over the rollout's tokens.

    Args:
        rewards_NT: finite rewards of each token
        mask_NT: bool, True for tokens that the policy wrote
        gamma: discount from one token that the policy wrote to the next
        whiten: normalise the advantages of a rollout's tokens to mean 0 and variance 1
    """
    from rlcore_trainer.algorithms.advantages.scan import lambda_advantages
    from rlcore_trainer.algorithms.advantages.statistics import whiten_tokens_

    advantages_NT = lambda_advantages(rewards_NT, None, mask_NT, gamma, 1.0)
    return advantages_NT, whiten_tokens_(advantages_NT, mask_NT) if whiten else {}
