"""The divergence between a policy and its teacher over the whole vocabulary, with its gradient, in chunks of tokens.

Axes: ``M`` the trained tokens, ``D`` the width of a model, ``V`` the vocabulary, ``C`` a chunk of the M rows, ``B`` a
tile of the V columns.

With p the policy and q the teacher, each divergence has a derivative of the form d/dz_j = p_j (g_j - Σ_k p_k g_k):

- reverse KL, KL(p, q): g = log p - log q
- forward KL, KL(q, p): g = -q / p
- JSD(β) = β KL(q, m) + (1 - β) KL(p, m) with m = β q + (1 - β) p (Agarwal et al. 2023, arXiv 2306.13649, eq. 1):
  g = (1 - β) (log p - log m)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from rlcore_trainer.algorithms.config import Divergence
from rlcore_trainer.policy.logits import HeadGradient, Tiles, place, slices
from rlcore_trainer.policy.logprobs import Output, rows_held

BUFFERS = 4
"""Tensors of the size of a chunk's logits: those of policy and teacher, and temporary ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceOptions:
    """A divergence between two distributions over the vocabulary."""

    divergence: Divergence
    beta: float = 0.5
    """β, for ``jsd``."""
    temperature: float = 1.0
    """Divisor of the logits of both models."""


class TokenDivergences(NamedTuple):
    """The result of `divergences`, without a graph."""

    divergence_M: Tensor
    """In nats."""
    logprobs_M: Tensor
    """Log-probabilities of the targets under the policy."""
    teacher_logprobs_M: Tensor
    teacher_entropy_M: Tensor
    gradient: HeadGradient
    """The gradient of ``(weights_M * divergence_M).sum()`` with respect to the output of the policy."""


@torch.no_grad()
def divergences(
    policy: Output,
    teacher: Output,
    targets_M: Tensor,
    weights_M: Tensor,
    options: DivergenceOptions,
    *,
    chunk_rows: int | None = None,
) -> TokenDivergences:
    """Return the divergence of each token and the gradient of their weighted sum, computed in one pass.

    Args:
        policy: the output of the policy
        teacher: the output of the teacher. Of its output layer, the first V rows are used: models of one tokenizer may
            be padded to different sizes
        targets_M: the sampled tokens
        weights_M: the weight of each token's divergence in the loss
        options: the divergence
        chunk_rows: number of rows whose logits are stored at once; None selects it automatically
    """
    hidden_MD, head_VD = policy
    count, vocabulary = len(hidden_MD), len(head_VD)
    teacher_VD = teacher.head_VD[:vocabulary]
    rows = min(chunk_rows or max(1, rows_held(head_VD) // BUFFERS), max(1, count))
    of_policy, of_teacher = Tiles(hidden_MD, head_VD, rows), Tiles(teacher.hidden_MD, teacher_VD, rows)
    held, held_by_teacher = (tiles.memory(rows * vocabulary) for tiles in (of_policy, of_teacher))
    gradient = HeadGradient(hidden_MD, head_VD, wants_hidden=hidden_MD.requires_grad, wants_head=head_VD.requires_grad)
    divergence_M, logprobs_M, teacher_logprobs_M, entropy_M = (of_policy.memory(count).zero_() for _ in range(4))
    for chunk in slices(count, rows):
        log_p = _log_softmax(of_policy, hidden_MD[chunk], options.temperature, held)
        log_q = _log_softmax(of_teacher, teacher.hidden_MD[chunk], options.temperature, held_by_teacher)
        log_q = [log_q_CB.to(of_policy.dtype) for log_q_CB in log_q]
        logprobs_M[chunk] = _picked(of_policy, log_p, targets_M[chunk])
        teacher_logprobs_M[chunk] = _picked(of_policy, log_q, targets_M[chunk])
        slope_sum_C = torch.zeros_like(divergence_M[chunk])
        for log_p_CB, log_q_CB in zip(log_p, log_q, strict=True):
            q_CB = log_q_CB.exp()
            entropy_M[chunk] -= (q_CB * log_q_CB).sum(1)
            value_CB, slope_CB = _terms(log_p_CB, log_q_CB, q_CB, options)
            divergence_M[chunk] += value_CB.sum(1)
            slope_sum_C += slope_CB.sum(1)
            log_q_CB.copy_(slope_CB)
        weights_C1 = (weights_M[chunk].to(slope_sum_C) / options.temperature)[:, None]
        for tile, log_p_CB, slope_CB in zip(of_policy.columns, log_p, log_q, strict=True):
            p_CB = log_p_CB.exp_()
            gradient.add(chunk, tile, (slope_CB - p_CB.mul_(slope_sum_C[:, None])).mul_(weights_C1))
    return TokenDivergences(divergence_M, logprobs_M, teacher_logprobs_M, entropy_M, gradient)


def _terms(log_p_CB: Tensor, log_q_CB: Tensor, q_CB: Tensor, options: DivergenceOptions) -> tuple[Tensor, Tensor]:
    """Return the summands of the divergence, and p g (see the module)."""
    if options.divergence == "forward-kl":
        return q_CB * (log_q_CB - log_p_CB), -q_CB
    if options.divergence == "reverse-kl":
        slope_CB = (log_p_CB - log_q_CB).mul_(log_p_CB.exp())
        return slope_CB, slope_CB
    beta = options.beta
    log_m_CB = torch.logaddexp(log_q_CB + math.log(beta), log_p_CB + math.log1p(-beta))
    slope_CB = (log_p_CB - log_m_CB).mul_(log_p_CB.exp()).mul_(1 - beta)
    return beta * q_CB * (log_q_CB - log_m_CB) + slope_CB, slope_CB


def _log_softmax(tiles: Tiles, hidden_CD: Tensor, temperature: float, held: Tensor) -> list[Tensor]:
    """Return the log-probabilities of a chunk as its tiles, in ``held``."""
    hidden_CD = tiles.inputs(hidden_CD)
    found = [tiles.logits(hidden_CD, tile, temperature, held[len(hidden_CD) * tile.start :]) for tile in tiles.columns]
    largest_C1 = torch.stack([logits_CB.amax(1) for logits_CB in found]).amax(0)[:, None]
    log_sum_C1 = torch.stack([logits_CB.sub_(largest_C1).exp().sum(1) for logits_CB in found]).sum(0).log()[:, None]
    return [logits_CB.sub_(log_sum_C1) for logits_CB in found]


def _picked(tiles: Tiles, found: list[Tensor], targets_C: Tensor) -> Tensor:
    """Return the entries of the targets."""
    picked_C = torch.zeros_like(found[0][:, 0])
    for tile, values_CB in zip(tiles.columns, found, strict=True):
        column_C1, inside_C = place(targets_C, tile.start, values_CB.shape[1])
        picked_C = torch.where(inside_C, values_CB.gather(1, column_C1)[:, 0], picked_C)
    return picked_C
