"""Fast discounted sums over the tokens that the policy wrote, for rows with or without gaps.

Axes: ``N`` trajectories; ``T`` tokens, padded right; ``K`` blocks of ``B`` tokens. A gap is a token that the policy did
not write, such as a token of a tool result, followed later by a written token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 64
"""Number of tokens summed by one product with a triangular matrix."""
CHUNK = 2**17
"""Number of values processed at once, small enough to stay in a core's cache between operations."""


def row_chunks(array_NT: Tensor) -> Iterator[slice]:
    """Return slices of the rows, each with about `CHUNK` values."""
    rows, tokens = array_NT.shape
    step = max(1, CHUNK // max(1, tokens))
    return (slice(start, start + step) for start in range(0, rows, step))


def ones_NT(mask_NT: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the mask as zeros and ones. It is read as bytes, which convert many times faster than bool."""
    return mask_NT.view(torch.uint8).to(dtype)


@torch.no_grad()
def lambda_advantages(
    rewards_NT: Tensor, values_NT: Tensor | None, mask_NT: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """Return ``Σ_k (γλ)^k δ_{t+k}`` with ``δ_t = r_t + γ V_{t+1} − V_t`` over written tokens, and 0 on the others.

    Without values, ``δ`` is the reward. A reward on an unwritten token counts for the written token before it, or for
    the first written token if there is none. In a row without written tokens, rewards are ignored.

    Args:
        rewards_NT: finite rewards
        values_NT: finite values of the state before each token, in units of reward
        mask_NT: bool, True for tokens that the policy wrote
        gamma: discount from one written token to the next
        gae_lambda: weight of the next token's sum against its value

    Raises:
        ValueError: rewards or values are not finite
    """
    dtype = torch.promote_types(rewards_NT.dtype, torch.float32)
    if values_NT is not None:
        dtype = torch.promote_types(dtype, values_NT.dtype)
    sums_NT = torch.empty(rewards_NT.shape, dtype=dtype, device=rewards_NT.device)
    powers = Powers.of(gamma * gae_lambda, sums_NT)
    for rows in row_chunks(rewards_NT):
        rewards, mask = rewards_NT[rows].to(dtype), mask_NT[rows]
        written = ones_NT(mask, dtype)
        numbers = rewards * written
        values = None if values_NT is None else values_NT[rows].to(dtype) * written
        plain = _stand_first(written) and not _any(rewards - numbers)
        if not plain:
            # Remove the gaps: each reward moves to the index of the written token that it counts for.
            place = (mask.cumsum(1) - 1).clamp(min=0)
            numbers = torch.zeros_like(rewards).scatter_add(1, place, rewards)
            values = None if values is None else torch.zeros_like(values).scatter_add(1, place, values)
        if values is not None:
            numbers.sub_(values)
            numbers[:, :-1].add_(values[:, 1:], alpha=gamma)
        sums = discounted_sums_(numbers, powers)
        sums_NT[rows] = sums if plain else sums.gather(1, place) * written
    return sums_NT


@torch.no_grad()
def lambda_returns(
    rewards_NT: Tensor, values_NT: Tensor, mask_NT: Tensor, *, gamma: float = 1.0, gae_lambda: float = 1.0
) -> Tensor:
    """Return the critic's targets ``V_t + A_t``, A from `gae` before whitening (TD(λ), Sutton & Barto eq. 12.2).

    Args:
        rewards_NT: finite rewards of each token
        values_NT: the critic's value of the state before each token, finite, in units of reward
        mask_NT: bool, True for tokens that the policy wrote
        gamma: discount from one written token to the next
        gae_lambda: 0 bootstraps from the next token's value, 1 uses all rewards to the end

    Returns:
        ``returns_NT`` in units of reward, 0 for tokens that the policy did not write
    """
    returns_NT = lambda_advantages(rewards_NT, values_NT, mask_NT, gamma, gae_lambda)
    return returns_NT.add_(ones_NT(mask_NT, returns_NT.dtype) * values_NT)


class Powers(NamedTuple):
    """Powers of a discount factor, used by `discounted_sums_`."""

    factor: float
    within_BB: Tensor
    """Discounts between tokens of a block: the lower triangular matrix of ``factor^(row − column)``."""
    between_KK: Tensor
    """Discounts between the starts of blocks."""

    @classmethod
    def of(cls, factor: float, like_NT: Tensor) -> Powers:
        """Create the powers for rows with the shape, dtype and device of ``like_NT``."""
        blocks = -(-like_NT.shape[1] // BLOCK)
        return cls(factor, _triangle(BLOCK, factor, like_NT), _triangle(blocks, factor**BLOCK, like_NT))


def discounted_sums_(numbers_NT: Tensor, powers: Powers) -> Tensor:
    """Return ``S_t = x_t + factor · S_{t+1}`` along each row, with ``S = 0`` after the end. Overwrites the input.

    Each block is summed by a product with the triangular matrix of powers, and so are the sums at the block starts. The
    sum of later blocks is added to the last token of a block.
    """
    rows, tokens = numbers_NT.shape
    if not numbers_NT.numel():
        return numbers_NT
    blocks = len(powers.between_KK)
    if tokens % BLOCK:
        numbers_NT = torch.nn.functional.pad(numbers_NT, (0, blocks * BLOCK - tokens))
    numbers_NKB = numbers_NT.view(rows, blocks, BLOCK)
    starts_NK = numbers_NKB @ powers.within_BB[:, 0] @ powers.between_KK
    if not torch.isfinite(starts_NK).all():
        raise ValueError("rewards and values must be finite numbers; omit trajectories without a score")
    numbers_NKB[:, :-1, -1] += powers.factor * starts_NK[:, 1:]
    return (numbers_NKB @ powers.within_BB).view(rows, -1)[:, :tokens]


def _stand_first(written_NT: Tensor) -> bool:
    """Return whether no row has a written token after an unwritten one."""
    return not written_NT[:, 1:].numel() or float((written_NT[:, 1:] - written_NT[:, :-1]).amax()) <= 0


def _any(numbers_NT: Tensor) -> bool:
    """Return whether any value is nonzero, using min and max, which are many times faster than counting in torch."""
    return bool(numbers_NT.numel()) and not float(numbers_NT.amax()) == float(numbers_NT.amin()) == 0


def _triangle(size: int, factor: float, like: Tensor) -> Tensor:
    """Return the lower triangular matrix of ``factor^(row − column)``."""
    places = torch.arange(size, device=like.device)
    distance = places[:, None] - places
    powers = torch.tensor(factor, dtype=torch.float64, device=like.device) ** distance.clamp(min=0)
    return (powers * (distance >= 0)).to(like.dtype)
