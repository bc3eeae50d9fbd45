"""Means and standard deviations of group rewards and of the advantages of all written tokens.

Axes: ``N`` scored trajectories; ``P`` groups; ``T`` tokens, padded right.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlcore_trainer.algorithms.advantages.scan import ones_NT, row_chunks

WHITEN_EPSILON = 1e-8
"""Added to the variance before whitening divides by its square root."""


class GroupedRewards:
    """Rewards and their groups. A group of one has no siblings to compare with, so its baseline is 0.

    Args:
        rewards_N: finite rewards
        groups_N: group label of each trajectory, integers in any order

    Raises:
        ValueError: a reward is not finite, which would invalidate its whole group
    """

    def __init__(self, rewards_N: Tensor, groups_N: Tensor) -> None:
        if not torch.isfinite(rewards_N).all():
            raise ValueError("rewards must be finite numbers; omit trajectories without a score")
        self.rewards_N = rewards_N.to(torch.promote_types(rewards_N.dtype, torch.float32))
        labels_P, self.index_N = torch.unique(groups_N, return_inverse=True)
        self._zeros_P = self.rewards_N.new_zeros(len(labels_P))
        self.counts_P = self.sums_P(torch.ones_like(self.rewards_N))
        self.alone_P = self.counts_P == 1
        self.highest_P = self._zeros_P.scatter_reduce(0, self.index_N, self.rewards_N, "amax", include_self=False)
        lowest_P = self._zeros_P.scatter_reduce(0, self.index_N, self.rewards_N, "amin", include_self=False)
        self.equal_P = (lowest_P == self.highest_P) & ~self.alone_P

    def sums_P(self, numbers_N: Tensor) -> Tensor:
        """Return the sum over each group."""
        return self._zeros_P.index_add(0, self.index_N, numbers_N)

    def of_each_N(self, numbers_P: Tensor) -> Tensor:
        """Return the value of each trajectory's group."""
        return numbers_P[self.index_N]

    def means_P(self, weights_N: Tensor | None = None) -> Tensor:
        """Return the mean of each group, weighted if weights are given; unweighted where the weights sum to zero."""
        means_P = self.sums_P(self.rewards_N) / self.counts_P
        if weights_N is None:
            return means_P
        weights_N = weights_N.to(self.rewards_N.dtype)
        totals_P = self.sums_P(weights_N)
        weighted_P = self.sums_P(weights_N * self.rewards_N) / totals_P.masked_fill(totals_P == 0, 1.0)
        return torch.where(totals_P == 0, means_P, weighted_P)

    def against(self, baselines_P: Tensor) -> Tensor:
        """Return rewards minus group baselines: exactly 0 in a group of equal rewards, the reward in a group of one."""
        # The mean of equal rewards may differ from them in the last bit; a small divisor would amplify the difference.
        centred_N = self.rewards_N - self.of_each_N(baselines_P.masked_fill(self.alone_P, 0.0))
        return centred_N.masked_fill(self.of_each_N(self.equal_P), 0.0)

    def spreads_P(self) -> Tensor:
        """Return the unbiased standard deviation of each group; 1 for a group of one."""
        squares_P = self.sums_P(self.against(self.means_P()).square())
        return (squares_P / (self.counts_P - 1).clamp(min=1)).sqrt().masked_fill(self.alone_P, 1.0)

    def spread(self) -> Tensor:
        """Return the unbiased standard deviation of all rewards; 1 if there are fewer than two."""
        return self.rewards_N.std() if len(self.rewards_N) > 1 else self.rewards_N.new_ones(())

    def metrics(self) -> dict[str, float]:
        """Return ``groups/equal``, the share of groups without a learning signal because all rewards are equal."""
        return {"groups/equal": float(self.equal_P.float().mean()) if len(self.equal_P) else 0.0}


def whiten_tokens_(advantages_NT: Tensor, mask_NT: Tensor) -> dict[str, float]:
    """Normalise the written tokens of a rollout to mean 0 and variance 1, in place; the other tokens remain 0.

    ``(A − mean) / sqrt(var + 1e-8)`` with the unbiased variance. Equal advantages become exactly 0. A single advantage
    also becomes 0, because its mean is subtracted and it has no spread.

    Returns:
        ``advantages/mean`` and ``advantages/std`` before normalisation
    """
    count, mean, squares = 0, 0.0, 0.0
    for rows in row_chunks(advantages_NT):
        written = ones_NT(mask_NT[rows], advantages_NT.dtype)
        here = int(written.sum())
        if not here:
            continue
        mean_here = float(advantages_NT[rows].sum()) / here
        centred = torch.sub(advantages_NT[rows], written, alpha=mean_here).flatten()
        # Chan, Golub & LeVeque 1979: merge sums of squares about separate means without cancellation.
        gap, total = mean_here - mean, count + here
        squares += float(torch.dot(centred, centred)) + gap * gap * count * here / total
        mean += gap * here / total
        count = total
    variance = squares / (count - 1) if count > 1 else 0.0
    scale = 0.0 if _all_equal(advantages_NT, mask_NT) else 1.0 / math.sqrt(variance + WHITEN_EPSILON)
    for rows in row_chunks(advantages_NT):
        written = ones_NT(mask_NT[rows], advantages_NT.dtype)
        advantages_NT[rows].mul_(scale).sub_(written, alpha=mean * scale)
    return {"advantages/mean": mean, "advantages/std": math.sqrt(variance)}


def whiten_rows(advantages_N: Tensor, tokens_N: Tensor) -> tuple[Tensor, dict[str, float]]:
    """Whiten like `whiten_tokens_`, with the same advantage for all written tokens of a trajectory."""
    tokens_N = tokens_N.to(advantages_N.dtype)
    total = float(tokens_N.sum())
    mean_N = (tokens_N * advantages_N).sum() / max(total, 1.0)
    centred_N = advantages_N - mean_N
    variance = float((tokens_N * centred_N.square()).sum()) / max(total - 1.0, 1.0)
    metrics = {"advantages/mean": float(mean_N), "advantages/std": math.sqrt(variance)}
    with_tokens = advantages_N[tokens_N > 0]
    if not len(with_tokens) or bool((with_tokens == with_tokens[0]).all()):
        return torch.zeros_like(advantages_N), metrics
    return centred_N / math.sqrt(variance + WHITEN_EPSILON), metrics


def _all_equal(advantages_NT: Tensor, mask_NT: Tensor) -> bool:
    """Return whether all written tokens have the same advantage; stops at the first chunk that differs."""
    first: Tensor | None = None
    for rows in row_chunks(advantages_NT):
        written = advantages_NT[rows][mask_NT[rows]]
        if not len(written):
            continue
        first = written[0] if first is None else first
        if not bool((written == first).all()):
            return False
    return True
