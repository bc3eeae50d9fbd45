"""What is minimised on a micro-batch: the policy loss, the pull to the reference, the entropy bonus.

Axes: ``N`` the tokens of a packed row, ``M`` its trained tokens, ``C`` a chunk of these, ``D`` the width of the model.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rlcore_trainer.algorithm_config import AlgorithmConfig
from rlcore_trainer.logprobs import LossOfChunk
from rlcore_trainer.losses import correction, entropy_bonus, kl
from rlcore_trainer.losses.correction import effective_share
from rlcore_trainer.needs import Injected
from rlcore_trainer.packing import MicroBatch

Rows = dict[int, Tensor]
"""Numbers of the trained tokens of some sequences, by index of the sequence."""
Terms = tuple[Tensor, dict[str, Tensor]]


class Objective:
    """The loss of a micro-batch as a function of its log-probabilities and entropies.

    Args:
        policy_loss: called with what its signature names
        algorithm: correction, entropy and KL are read
        comparable: whether the engine's log-probabilities are of the distribution that is trained; where they are
            not, nothing is corrected
    """

    def __init__(self, policy_loss: Injected, algorithm: AlgorithmConfig, *, comparable: bool) -> None:
        self._policy_loss, self._algorithm, self._comparable = policy_loss, algorithm, comparable
        self._of_policy_loss: set[str] = set()

    def is_token_wise(self, *, old_known: bool) -> bool:
        """Whether it may be evaluated chunk by chunk; ``old_known`` as ``old_M`` in `of` is not None."""
        settings = self._algorithm.correction
        whole = self._comparable and settings.mode != "none" and settings.level == "sequence" and not old_known
        return not whole and not self._policy_loss.reads("sequence_M")

    def of(
        self, batch: MicroBatch, *, old_M: Tensor | None, reference_M: Tensor | None, coefficient: float
    ) -> tuple[LossOfChunk, dict[str, Tensor]]:
        """The loss of a micro-batch, and the metrics that are known before it is evaluated.

        Args:
            batch: with weights and advantages
            old_M: log-probabilities before the first update; None takes the present ones, detached
            reference_M: log-probabilities of the reference policy; None has no KL term
            coefficient: of the KL term
        """
        algorithm = self._algorithm
        known: Tensor | None = None
        before: dict[str, Tensor] = {}
        if self._comparable and old_M is not None:
            known, before = self._factors(old_M, batch, slice(None))

        def loss(chunk: slice, logprobs_C: Tensor, entropy_C: Tensor | None) -> Terms:
            assert entropy_C is not None
            old_C = logprobs_C.detach() if old_M is None else old_M[chunk].to(logprobs_C)
            weights_C = batch.weights_M[chunk].to(logprobs_C)
            metrics: dict[str, Tensor] = {}
            corrected_C = weights_C
            if known is not None:
                corrected_C = weights_C * known[chunk].to(weights_C)
            elif self._comparable:
                factors_C, metrics = self._factors(old_C, batch, chunk)
                corrected_C = weights_C * factors_C
            data = {
                "logprobs_M": logprobs_C,
                "old_logprobs_M": old_C,
                "advantages_M": batch.advantages_M[chunk].to(logprobs_C),
                "weights_M": corrected_C,
                "sequence_M": batch.sequence_M[chunk],
            }
            policy_loss, of_loss = self._policy_loss(data)
            total = policy_loss
            bonus = entropy_bonus(entropy_C, weights_C)
            if algorithm.entropy:
                total = total + algorithm.entropy * bonus
            if reference_M is not None:
                divergence_C = kl(
                    logprobs_C,
                    reference_M[chunk].to(logprobs_C),
                    algorithm.kl.estimator,
                    old_logprobs_M=old_C if algorithm.kl.importance_weighted else None,
                )
                divergence = (weights_C * divergence_C).sum()
                total = total + coefficient * divergence
                metrics["kl/mean"] = divergence.detach()
            self._of_policy_loss |= of_loss.keys() - metrics.keys()
            metrics = of_loss | metrics
            metrics |= {"loss/policy": policy_loss.detach(), "loss/total": total.detach()}
            return total, metrics | {"entropy/mean": -bonus.detach()}

        return loss, before

    def means(self, totals: Mapping[str, float], share: float) -> dict[str, float]:
        """Metrics of a mini-batch from the sums over its micro-batches.

        Those of the policy loss are means under the corrected weights that it was given, so that a share is at most 1;
        all others under the weights before the correction. Losses and largest values are what they are.

        Args:
            totals: as `add_metrics` sums them up
            share: the sum of the weights before the correction
        """
        corrected = totals.get("correction/factor", share)
        means: dict[str, float] = {}
        for name, total in totals.items():
            if name.endswith("/max") or name.startswith(("loss/", "critic/")):
                means[name] = total
            else:
                weight = corrected if name in self._of_policy_loss else share
                means[name] = total / weight if weight else 0.0
        if "correction/square" in means:
            means["correction/effective"] = effective_share(means["correction/factor"], means.pop("correction/square"))
        return means

    def _factors(self, old_C: Tensor, batch: MicroBatch, chunk: slice) -> Terms:
        settings = self._algorithm.correction
        factors_C, metrics = correction(
            old_C,
            batch.engine_logprobs_M[chunk].to(old_C),
            batch.sequence_M[chunk],
            mode=settings.mode,
            level=settings.level,
            low=settings.low,
            high=settings.high,
            weights_M=batch.weights_M[chunk].to(old_C),
        )
        return factors_C, metrics


def split(values_M: Tensor, sequence_M: Tensor) -> Rows:
    """The numbers of a micro-batch's trained tokens by sequence."""
    owners, counts = torch.unique_consecutive(sequence_M, return_counts=True)
    return dict(zip(owners.tolist(), torch.split(values_M, counts.tolist()), strict=True))


def rows_of(rows: Rows, sequence_M: Tensor) -> Tensor:
    """The numbers of some sequences in the order of a micro-batch's trained tokens."""
    return torch.cat([rows[i] for i in torch.unique_consecutive(sequence_M).tolist()])


def chosen(rows: Rows, members: list[int]) -> Rows:
    """The rows of some sequences under their places in ``members``."""
    return {place: rows[i] for place, i in enumerate(members)}


def add_metrics(totals: dict[str, float], metrics: Mapping[str, Tensor]) -> None:
    """Add the metrics of a micro-batch: those that end in ``/max`` by the larger one, all others as sums."""
    for name, value in metrics.items():
        number = float(value.detach())
        known = totals.get(name, 0.0)
        totals[name] = max(number, known) if name.endswith("/max") else known + number
