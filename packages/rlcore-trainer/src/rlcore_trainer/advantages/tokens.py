"""Advantages of single tokens.

Axes: ``N`` the scored trajectories of a rollout; ``T`` tokens, padded right. ``mask_NT`` is true on the tokens that the
policy wrote. All functions return ``advantages_NT`` that are 0 elsewhere, in the unit of the reward unless whitened.

Tokens that the policy did not write take no part: discounts are 1 across them, and the result is that of the row
without them. A reward that stands on one counts for the written token before it, or else for the first one. Rewards and
values that are not finite raise `ValueError`.

Whitening brings the written tokens of the whole rollout to mean 0 and variance 1 (``sqrt(var + 1e-8)``, unbiased).
Equal advantages become exactly 0, a single one too. ``advantages/mean`` and ``advantages/std`` tell what they were.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlcore_trainer.advantages.groups import Advantages, dr_grpo
from rlcore_trainer.advantages.scan import lambda_advantages, ones_NT
from rlcore_trainer.advantages.statistics import whiten_rows, whiten_tokens_


@torch.no_grad()
def reinforce_plus_plus(rewards_NT: Tensor, mask_NT: Tensor, *, gamma: float = 1.0, whiten: bool = True) -> Advantages:
    """The discounted return from each token on, whitened (Hu et al. 2025, REINFORCE++, arXiv 2501.03262).

    ``A_t = Σ_{k≥t} γ^{k−t} r_k``. Needs no groups: the baseline is the mean over the rollout's tokens.

    Args:
        rewards_NT: finite rewards of each token
        mask_NT: bool, the policy wrote the token
        gamma: discount from one written token to the next
        whiten: subtract the mean over the rollout and divide by its standard deviation
    """
    advantages_NT = lambda_advantages(rewards_NT, None, mask_NT, gamma, 1.0)
    return advantages_NT, whiten_tokens_(advantages_NT, mask_NT) if whiten else {}


@torch.no_grad()
def reinforce_plus_plus_baseline(
    rewards_N: Tensor, groups_N: Tensor, mask_NT: Tensor, *, whiten: bool = True
) -> Advantages:
    """Reward minus the mean of its group on every token, whitened (Hu et al. 2025, arXiv 2501.03262).

    The spread that is divided by is that of the rollout, not of the group, so an easy group weighs no more than a hard
    one.

    Args:
        rewards_N: finite rewards
        groups_N: the group of each trajectory, integers in any order
        mask_NT: bool, the policy wrote the token
        whiten: subtract the mean over the rollout's tokens and divide by their standard deviation
    """
    advantages_N, metrics = dr_grpo(rewards_N, groups_N)
    written_NT = ones_NT(mask_NT, advantages_N.dtype)
    if whiten:
        advantages_N, before = whiten_rows(advantages_N, written_NT.sum(1))
        metrics |= before
    return written_NT.mul_(advantages_N[:, None]), metrics


@torch.no_grad()
def remax(rewards_NT: Tensor, baselines_N: Tensor, mask_NT: Tensor) -> Advantages:
    """The return from each token on minus the reward of the greedy answer (Li et al. 2023, ReMax, arXiv 2310.10505).

    ``A_t = Σ_{k≥t} r_k − R_greedy``. The greedy answer does not depend on what was sampled, so the gradient is
    unbiased without groups.

    Args:
        rewards_NT: finite rewards of each token
        baselines_N: the reward of the greedy answer to each one's prompt
        mask_NT: bool, the policy wrote the token
    """
    returns_NT = lambda_advantages(rewards_NT, None, mask_NT, 1.0, 1.0)
    return returns_NT.sub_(ones_NT(mask_NT, returns_NT.dtype) * baselines_N[:, None].to(returns_NT.dtype)), {}


@torch.no_grad()
def gae(
    rewards_NT: Tensor,
    values_NT: Tensor,
    mask_NT: Tensor,
    *,
    gamma: float = 1.0,
    gae_lambda: float = 1.0,
    whiten: bool = True,
) -> Advantages:
    """Generalised advantage estimation with a critic (Schulman et al. 2016, arXiv 1506.02438, eq. 16).

    ``A_t = Σ_k (γλ)^k δ_{t+k}`` with ``δ_t = r_t + γ V_{t+1} − V_t``; the value behind the last written token is 0.
    With λ = 1 the gradient is unbiased whatever the values are.

    Args:
        rewards_NT: finite rewards of each token
        values_NT: the critic's value of the state before each token, finite, in the unit of the reward
        mask_NT: bool, the policy wrote the token
        gamma: discount from one written token to the next
        gae_lambda: how far to look past the values: 0 to the next token, 1 to the end
        whiten: subtract the mean over the rollout and divide by its standard deviation
    """
    advantages_NT = lambda_advantages(rewards_NT, values_NT, mask_NT, gamma, gae_lambda)
    return advantages_NT, whiten_tokens_(advantages_NT, mask_NT) if whiten else {}


@torch.no_grad()
def lambda_returns(
    rewards_NT: Tensor, values_NT: Tensor, mask_NT: Tensor, *, gamma: float, gae_lambda: float
) -> Tensor:
    """What the critic is to predict: ``V_t + A_t`` with A of `gae` before whitening (TD(λ), Sutton & Barto eq. 12.2).

    Args:
        rewards_NT: finite rewards of each token
        values_NT: the critic's value of the state before each token, finite, in the unit of the reward
        mask_NT: bool, the policy wrote the token
        gamma: discount from one written token to the next
        gae_lambda: how far to look past the values: 0 to the next token, 1 to the end

    Returns:
        ``returns_NT`` in the unit of the reward, 0 where the policy did not write
    """
    returns_NT = lambda_advantages(rewards_NT, values_NT, mask_NT, gamma, gae_lambda)
    return returns_NT.add_(ones_NT(mask_NT, returns_NT.dtype) * values_NT)
