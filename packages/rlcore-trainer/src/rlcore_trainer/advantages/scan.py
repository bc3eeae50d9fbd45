"""Discounted sums along the tokens that the policy wrote, quickly, in any row with or without holes.

Axes: ``N`` trajectories; ``T`` tokens, padded right; ``K`` blocks of ``B`` tokens. A hole is a token that the policy
did not write, such as one of a tool's answer, with a written one somewhere behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 64
"""Tokens that one product with a triangular matrix sums up."""
CHUNK = 2**17
"""Numbers that are worked on at once: small enough to stay in a core's cache from one operation to the next."""


def row_chunks(array_NT: Tensor) -> Iterator[slice]:
    """Slices of the rows, each of about `CHUNK` numbers."""
    rows, tokens = array_NT.shape
    step = max(1, CHUNK // max(1, tokens))
    return (slice(start, start + step) for start in range(0, rows, step))


def ones_NT(mask_NT: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask as zeros and ones. Read as bytes, which is converted many times faster than bool."""
    return mask_NT.view(torch.uint8).to(dtype)


def lambda_advantages(
    rewards_NT: Tensor, values_NT: Tensor | None, mask_NT: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """``Σ_k (γλ)^k δ_{t+k}`` with ``δ_t = r_t + γ V_{t+1} − V_t``, over written tokens; 0 on the others.

    Without values ``δ`` is the reward. A reward on an unwritten token counts for the written one before it, or the
    first one; in a row without any it counts for nothing.

    Args:
        rewards_NT: finite rewards
        values_NT: finite values of the state before each token, of the same unit
        mask_NT: bool, the policy wrote the token
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
            # The row without its holes: each number moves to the place of the written token that it counts for.
            place = (mask.cumsum(1) - 1).clamp(min=0)
            numbers = torch.zeros_like(rewards).scatter_add(1, place, rewards)
            values = None if values is None else torch.zeros_like(values).scatter_add(1, place, values)
        if values is not None:
            numbers.sub_(values)
            numbers[:, :-1].add_(values[:, 1:], alpha=gamma)
        sums = discounted_sums_(numbers, powers)
        sums_NT[rows] = sums if plain else sums.gather(1, place) * written
    return sums_NT


class Powers(NamedTuple):
    """Powers of a discount: what `discounted_sums_` multiplies with."""

    factor: float
    within_BB: Tensor
    """From one token of a block to another: the lower triangular matrix of ``factor^(row − column)``."""
    between_KK: Tensor
    """From the start of one block to that of another."""

    @classmethod
    def of(cls, factor: float, like_NT: Tensor) -> Powers:
        """For rows such as these."""
        blocks = -(-like_NT.shape[1] // BLOCK)
        return cls(factor, _triangle(BLOCK, factor, like_NT), _triangle(blocks, factor**BLOCK, like_NT))


def discounted_sums_(numbers_NT: Tensor, powers: Powers) -> Tensor:
    """``S_t = x_t + factor · S_{t+1}`` along each row, with ``S`` zero behind the end. Overwrites the numbers.

    Blocks are summed by a product with the triangle of powers, and so are the sums at the starts of the blocks; what
    comes behind a block enters it through its last token.
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
        raise ValueError("rewards and values must be finite numbers; leave trajectories without a score out")
    numbers_NKB[:, :-1, -1] += powers.factor * starts_NK[:, 1:]
    return (numbers_NKB @ powers.within_BB).view(rows, -1)[:, :tokens]


def _stand_first(written_NT: Tensor) -> bool:
    """Whether in no row a written token follows an unwritten one."""
    return not written_NT[:, 1:].numel() or float((written_NT[:, 1:] - written_NT[:, :-1]).amax()) <= 0


def _any(numbers_NT: Tensor) -> bool:
    """Whether any is not 0. By the extremes, which torch finds many times faster than it counts."""
    return bool(numbers_NT.numel()) and not float(numbers_NT.amax()) == float(numbers_NT.amin()) == 0


def _triangle(size: int, factor: float, like: Tensor) -> Tensor:
    """The lower triangular matrix of ``factor^(row − column)``."""
    places = torch.arange(size, device=like.device)
    distance = places[:, None] - places
    powers = torch.tensor(factor, dtype=torch.float64, device=like.device) ** distance.clamp(min=0)
    return (powers * (distance >= 0)).to(like.dtype)
