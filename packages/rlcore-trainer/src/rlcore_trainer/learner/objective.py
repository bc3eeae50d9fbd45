"""The training objective of a micro-batch: the policy loss, the KL term and the entropy bonus.

Axes: ``N`` the tokens of a packed row, ``M`` its trained tokens, ``C`` a chunk of these, ``D`` the width of the model.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.algorithms.configured import loss_traits
from rlcore_trainer.algorithms.interface import Loss, LossInputs
from rlcore_trainer.algorithms.losses.divergence import kl
from rlcore_trainer.algorithms.losses.entropy import entropy_bonus
from rlcore_trainer.algorithms.losses.off_policy_mask import off_policy_mask
from rlcore_trainer.algorithms.losses.rollout_importance_sampling import effective_share, rollout_importance_sampling
from rlcore_trainer.algorithms.outputs import loss_of
from rlcore_trainer.batching.packing import MicroBatch
from rlcore_trainer.learner.distillation import metrics_of as distillation_metrics
from rlcore_trainer.policy.logprobs import LossOfChunk

Terms = tuple[Tensor, dict[str, Tensor]]


class Objective:
    """The loss of a micro-batch as a function of its log-probabilities and entropies.

    Args:
        policy_loss: the policy loss
        algorithm: settings of rollout importance sampling, entropy and KL
        comparable: whether the engine's log-probabilities are of the trained distribution; if not, no importance
            weights are used
    """

    def __init__(self, policy_loss: Loss, algorithm: AlgorithmConfig, *, comparable: bool) -> None:
        self._policy_loss, self._algorithm, self._comparable = policy_loss, algorithm, comparable
        self._traits = loss_traits(policy_loss)
        self._of_policy_loss: set[str] = set()

    def is_token_wise(self, *, old_known: bool) -> bool:
        """Return whether the loss can be evaluated in chunks; ``old_known`` tells whether `of` gets ``old_M``."""
        settings = self._algorithm.rollout_importance_sampling
        whole = self._comparable and settings.mode != "none" and settings.level == "sequence" and not old_known
        return not whole and self._algorithm.off_policy_threshold is None and self._traits.token_wise

    def of(
        self,
        batch: MicroBatch,
        *,
        old_M: Tensor | None,
        reference_M: Tensor | None,
        coefficient: float,
        teacher_M2: Tensor | None = None,
    ) -> tuple[LossOfChunk, dict[str, Tensor]]:
        """Return the loss of a micro-batch, and the metrics that are known before it is evaluated.

        Args:
            batch: micro-batch with weights and advantages
            old_M: log-probabilities before the first update; None uses the current ones, detached
            reference_M: log-probabilities of the reference policy; None disables the KL term
            coefficient: coefficient of the KL term
            teacher_M2: log-probabilities and entropies of the teacher; None disables distillation by sampled tokens
        """
        if not len(batch.targets_M):  # padding, see `rlcore_trainer.batching.packing.Share`
            return lambda _, logprobs_C, __: (logprobs_C.sum(), {}), {}
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
            factors_C = torch.ones_like(weights_C)
            if known is not None:
                factors_C = known[chunk].to(weights_C)
            elif self._comparable:
                factors_C, metrics = self._factors(old_C, batch, chunk)
            advantages_C = batch.advantages_M[chunk].to(logprobs_C)
            if teacher_M2 is not None:
                teacher_C, teacher_entropy_C = teacher_M2[chunk].to(logprobs_C).unbind(1)
                advantages_C = advantages_C + algorithm.distillation.coefficient * (teacher_C - old_C)
                metrics |= distillation_metrics(old_C, teacher_C, teacher_entropy_C, weights_C)
            weighted_C = weights_C if self._traits.weighs_rollout else weights_C * factors_C
            if algorithm.off_policy_threshold is not None:
                kept_C = off_policy_mask(
                    logprobs_C,
                    batch.engine_logprobs_M[chunk].to(logprobs_C) if self._comparable else old_C,
                    advantages_C,
                    batch.sequence_M[chunk],
                    threshold=algorithm.off_policy_threshold,
                )
                weighted_C = weighted_C * kept_C
                metrics["off_policy/masked"] = (weights_C * ~kept_C).sum()
            inputs = LossInputs(
                logprobs_M=logprobs_C,
                old_logprobs_M=old_C,
                advantages_M=advantages_C,
                weights_M=weighted_C,
                sequence_M=batch.sequence_M[chunk],
                factors_M=factors_C,
            )
            policy_loss, of_loss = loss_of(self._policy_loss, inputs)
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
        """Return the metrics of a mini-batch from the sums over its micro-batches.

        Metrics of the policy loss are means under the weights passed to it, which include the rollout importance
        weights, so that fractions are at most 1. All other metrics are means under the weights without them. Losses and
        maxima are not rescaled.

        Args:
            totals: sums as accumulated by `add_metrics`
            share: the sum of the weights without the rollout importance weights
        """
        weighted = share if self._traits.weighs_rollout else totals.get("rollout_is/factor", share)
        means: dict[str, float] = {}
        for name, total in totals.items():
            if name.endswith("/max") or name.startswith(("loss/", "critic/")):
                means[name] = total
            else:
                weight = weighted if name in self._of_policy_loss else share
                means[name] = total / weight if weight else 0.0
        if "rollout_is/square" in means:
            means["rollout_is/effective"] = effective_share(means["rollout_is/factor"], means.pop("rollout_is/square"))
        return means

    def _factors(self, old_C: Tensor, batch: MicroBatch, chunk: slice) -> Terms:
        settings = self._algorithm.rollout_importance_sampling
        factors_C, metrics = rollout_importance_sampling(
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
