"""``max-rl``: reward minus group mean, divided by the group mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore_trainer.algorithms.configured import advantage

if TYPE_CHECKING:
    from torch import Tensor


@advantage(compares_siblings=True)
def max_rl(rewards_N: Tensor, groups_N: Tensor) -> tuple[Tensor, dict[str, float]]:
    """Return the advantages of maximum-likelihood RL (Tajwar et al. 2026, MaxRL, arXiv 2602.02710).

    ``A = (R − mean) / mean``. With rewards of 0 and 1 and success probability p of a task, the expected gradient of a
    group of G is that of ``−Σ_{k=1}^{G−1} (1 − p)^k / k``, the Maclaurin series of ``log p`` cut after G − 1 terms. A
    group whose mean is 0 has no right answer, and its advantages are 0.

    Args:
        rewards_N: finite rewards, not negative
        groups_N: group label of each trajectory, integers in any order

    Raises:
        UserError: a reward is negative: a mean near 0 would divide large differences.
    """
    from rlcore.errors import UserError

    from rlcore_trainer.algorithms.advantages.statistics import GroupedRewards

    if (lowest := float(rewards_N.min())) < 0:
        raise UserError(
            "max-rl needs rewards that are not negative",
            found=f"a reward of {lowest:g}, penalties included",
            where="algorithm.advantage",
            fix="use rewards from 0 to 1 without penalties, or algorithm.advantage=grpo",
        )
    grouped = GroupedRewards(rewards_N, groups_N)
    means_P = grouped.means_P()
    divisors_P = means_P.masked_fill(grouped.alone_P | (means_P == 0), 1.0)
    return grouped.against(means_P) / grouped.of_each_N(divisors_P), grouped.metrics()
