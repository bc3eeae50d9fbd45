"""Log-probabilities and entropies of chosen tokens without ever holding ``[tokens, vocabulary]`` for all of them.

Axes: ``M`` the trained tokens, ``D`` the width of the model, ``V`` the vocabulary, ``C`` a chunk of the M rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = 1 << 24
"""How many logits are held at a time: 64 MiB in float32."""


def logprobs_and_entropy(
    hidden_MD: Tensor,
    head_VD: Tensor,
    targets_M: Tensor,
    *,
    temperature: float = 1.0,
    chunk_rows: int | None = None,
) -> tuple[Tensor, Tensor]:
    """``log softmax(hidden @ head.T / temperature)`` at the targets, and the entropy of each row, in nats.

    Rows are computed a chunk at a time, forward and backward, in float32 (float64 for float64 input); the backward
    pass computes the logits a second time instead of keeping them. Gradients reach ``hidden_MD`` and ``head_VD``.

    Returns:
        ``logprobs_M`` and ``entropy_M``.
    """
    rows = chunk_rows or max(1, CHUNK_ELEMENTS // head_VD.shape[0])
    apply: Any = _ChunkedLogprobs.apply
    result: tuple[Tensor, Tensor] = apply(hidden_MD, head_VD, targets_M, temperature, rows)
    return result


def _logits(hidden_CD: Tensor, head_VD: Tensor, temperature: float) -> Tensor:
    logits_CV = hidden_CD @ head_VD.T
    logits_CV = logits_CV.to(torch.promote_types(logits_CV.dtype, torch.float32))
    return logits_CV if temperature == 1.0 else logits_CV / temperature


class _ChunkedLogprobs(torch.autograd.Function):
    """The chunked loop as one differentiable operation."""

    @staticmethod
    def forward(
        ctx: Any, hidden_MD: Tensor, head_VD: Tensor, targets_M: Tensor, temperature: float, rows: int
    ) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(hidden_MD.dtype, torch.float32)
        logprobs_M = torch.empty(len(hidden_MD), dtype=dtype, device=hidden_MD.device)
        entropy_M, logsumexp_M = torch.empty_like(logprobs_M), torch.empty_like(logprobs_M)
        for start in range(0, len(hidden_MD), rows):
            chunk = slice(start, start + rows)
            logits_CV = _logits(hidden_MD[chunk], head_VD, temperature)
            logsumexp_C = logits_CV.logsumexp(-1)
            logsumexp_M[chunk] = logsumexp_C
            logprobs_M[chunk] = logits_CV.gather(1, targets_M[chunk, None])[:, 0] - logsumexp_C
            probabilities_CV = torch.softmax(logits_CV, -1)
            # 0 · -inf, where a logit is masked out, counts as 0.
            entropy_M[chunk] = logsumexp_C - (probabilities_CV * logits_CV).nan_to_num_(nan=0.0).sum(-1)
        ctx.save_for_backward(hidden_MD, head_VD, targets_M, logsumexp_M, entropy_M)
        ctx.temperature, ctx.rows = temperature, rows
        return logprobs_M, entropy_M

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        grad_logprobs_M, grad_entropy_M = gradients
        hidden_MD, head_VD, targets_M, logsumexp_M, entropy_M = ctx.saved_tensors
        wants_hidden, wants_head = ctx.needs_input_grad[:2]
        grad_hidden_MD = torch.empty_like(hidden_MD) if wants_hidden else None
        # Summed in float32: rounding each chunk's part to bfloat16 would bias the training.
        grad_head_VD = torch.zeros_like(head_VD, dtype=logsumexp_M.dtype) if wants_head else None
        with_entropy = bool(grad_entropy_M.any())
        for start in range(0, len(hidden_MD), ctx.rows):
            chunk = slice(start, start + ctx.rows)
            log_CV = _logits(hidden_MD[chunk], head_VD, ctx.temperature) - logsumexp_M[chunk, None]
            probabilities_CV = log_CV.exp()
            # d logp[y] / d z_j = 1[j = y] - p_j   and   d H / d z_j = -p_j (log p_j + H)
            grad_CV = probabilities_CV * -grad_logprobs_M[chunk, None]
            if with_entropy:
                spread_CV = (probabilities_CV * (log_CV + entropy_M[chunk, None])).nan_to_num_(nan=0.0)
                grad_CV -= spread_CV * grad_entropy_M[chunk, None]
            grad_CV.scatter_add_(1, targets_M[chunk, None], grad_logprobs_M[chunk, None])
            if ctx.temperature != 1.0:
                grad_CV /= ctx.temperature
            if grad_hidden_MD is not None:
                grad_hidden_MD[chunk] = grad_CV.to(head_VD.dtype) @ head_VD
            if grad_head_VD is not None:
                # Both factors in the type of the sum, which may be wider than the hidden states'.
                grad_head_VD.addmm_(grad_CV.T, hidden_MD[chunk].to(grad_CV.dtype))
        head = None if grad_head_VD is None else grad_head_VD.to(head_VD.dtype)
        return grad_hidden_MD, head, None, None, None
