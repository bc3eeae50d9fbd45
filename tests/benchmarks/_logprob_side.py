"""One side of ``logprob-memory``, controlled by ``worker.Gate``.

``python _logprob_side.py SIDE THREADS ROWS VOCABULARY WIDTH``

The first report comes after the imports and the creation of the inputs, so the memory above it is that of the pass:
logits, their derivatives, and the gradients of hidden states and output layer. Each step is one forward and backward
pass. It reports the loss and the norms of both gradients, which must be the same on every side.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "references"))

from worker import Gate

Logprobs = Callable[[Tensor, Tensor, Tensor], Tensor]


def naive(hidden_MD: Tensor, head_VD: Tensor, targets_M: Tensor) -> Tensor:
    """All logits at once in float32, with autograd."""
    return (hidden_MD @ head_VD.T).log_softmax(-1).gather(1, targets_M[:, None])[:, 0]


def logprobs_of(side: str) -> Logprobs:
    """The function of a side."""
    if side == "naive":
        return naive
    if side == "generic":
        from rlcore_trainer.policy.logprobs import logprobs_and_entropy

        return lambda *inputs: logprobs_and_entropy(*inputs)[0]
    name, _, size = side.partition("-")
    if name == "verl":
        from verl.utils.experimental.torch_functional import FusedLinearForPPO

        fused = FusedLinearForPPO(chunk_size=int(size), impl_backend="torch")
        return lambda hidden_MD, head_VD, targets_M: fused(hidden_MD, head_VD, targets_M)[0]
    from trl.kernels import ChunkedLogProbFunction
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE as CHUNK

    def chunked(hidden_MD: Tensor, head_VD: Tensor, targets_M: Tensor) -> Tensor:
        made = ChunkedLogProbFunction.apply(hidden_MD, head_VD, None, targets_M, 1.0, CHUNK, None, 1.0, ())
        return made[0]

    return chunked


def pass_of(side: str) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Loss of ``sum(weights * log-probability)``, with its graph."""
    if side.startswith("fused"):
        from rlcore_trainer.policy.logprobs import fused_loss

        def fused(hidden_MD: Tensor, head_VD: Tensor, targets_M: Tensor, weights_M: Tensor) -> Tensor:
            def of_chunk(
                chunk: slice, logprobs_C: Tensor, entropy_C: Tensor | None
            ) -> tuple[Tensor, dict[str, Tensor]]:
                return (weights_M[chunk] * logprobs_C).sum(), {}

            return fused_loss(hidden_MD, head_VD, targets_M, of_chunk, entropy=side == "fused-entropy").loss

        return fused
    logprobs = logprobs_of(side)
    return lambda *inputs: (inputs[3] * logprobs(*inputs[:3])).sum()


def main(side: str, threads: int, rows: int, vocabulary: int, width: int) -> None:
    """Run steps until the gate closes."""
    torch.set_num_threads(threads)
    gate = Gate()
    compute = pass_of(side)
    torch.manual_seed(0)
    hidden_MD = torch.randn(rows, width).requires_grad_()
    head_VD = torch.randn(vocabulary, width).mul_(0.05).requires_grad_()
    targets_M, weights_M = torch.randint(vocabulary, (rows,)), torch.randn(rows)
    go_on = gate.wait(pid=os.getpid())
    while go_on:
        hidden_MD.grad = head_VD.grad = None
        loss = compute(hidden_MD, head_VD, targets_M, weights_M)
        loss.backward()
        assert hidden_MD.grad is not None
        assert head_VD.grad is not None
        go_on = gate.wait(
            loss=float(loss.detach()), hidden=float(hidden_MD.grad.norm()), head=float(head_VD.grad.norm())
        )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
