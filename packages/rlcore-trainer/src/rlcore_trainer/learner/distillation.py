"""Distillation from a teacher: how it scores the tokens of the policy, and the terms of the loss.

Axes: ``M`` the trained tokens of a micro-batch, ``C`` a chunk of them.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from rlcore_trainer.algorithms.config import DistillationConfig
from rlcore_trainer.batching.packing import MicroBatch
from rlcore_trainer.policy.logprobs import LossOfOutput, Output, with_gradient
from rlcore_trainer.policy.policy import DistilledPolicy
from rlcore_trainer.policy.teacher_divergence import DivergenceOptions, divergences

Terms = tuple[Tensor, dict[str, Tensor]]


class Distillation:
    """The teacher of a run in one process.

    Args:
        teacher: the teacher
        config: which divergence is minimised, and its weight
        temperature: divisor of the logits of both models
    """

    def __init__(self, teacher: DistilledPolicy, config: DistillationConfig, *, temperature: float) -> None:
        self.teacher, self._config = teacher, config
        self._options = DivergenceOptions(divergence=config.divergence, beta=config.beta, temperature=temperature)

    def loss_of(self, batch: MicroBatch) -> LossOfOutput | None:
        """Return the divergence over the vocabulary as a term of the loss; None if sampled tokens are enough."""
        return None if self._config.divergence == "sampled" else partial(self._divergence, batch)

    def _divergence(self, batch: MicroBatch, output: Output) -> Terms:
        weights_M, coefficient = batch.weights_M, self._config.coefficient
        # Without a graph, FSDP2 frees the teacher's weights right after its forward pass.
        with torch.no_grad(), self.teacher.computing():
            found = self.teacher.of_output(
                batch,
                lambda own: divergences(output, own, batch.targets_M, coefficient * weights_M, self._options),
            )
        weights_M = weights_M.to(found.divergence_M)
        total = (weights_M * found.divergence_M).sum()
        metrics = metrics_of(found.logprobs_M, found.teacher_logprobs_M, found.teacher_entropy_M, weights_M)
        loss = with_gradient(coefficient * total, *output, found.gradient)
        return loss, {**metrics, "distillation/divergence": total, "loss/total": loss.detach()}


def metrics_of(
    logprobs_M: Tensor, teacher_logprobs_M: Tensor, teacher_entropy_M: Tensor, weights_M: Tensor
) -> dict[str, Tensor]:
    """Return the metrics of sampled tokens as weighted sums."""
    gap_M = teacher_logprobs_M - logprobs_M
    return {
        "distillation/kl": -(weights_M * gap_M).sum(),
        "distillation/preferred": (weights_M * (gap_M > 0)).sum(),
        "distillation/teacher_entropy": (weights_M * teacher_entropy_M).sum(),
    }
