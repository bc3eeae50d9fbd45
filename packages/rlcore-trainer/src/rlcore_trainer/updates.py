"""From sequences with advantages to optimiser updates."""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from rlcore.types import derive_seed
from torch import Tensor
from transformers import PreTrainedModel

from rlcore_trainer.attention import packed_attention_of
from rlcore_trainer.config import AlgorithmConfig, PolicyGradientConfig
from rlcore_trainer.losses import entropy_bonus, kl, token_weights
from rlcore_trainer.model import batch_logprobs
from rlcore_trainer.packing import MicroBatch, Sequence, pack
from rlcore_trainer.strategies.single import SingleProcess

PolicyLoss = Callable[..., tuple[Tensor, dict[str, Tensor]]]


@dataclass(slots=True)
class Updated:
    """What the updates on one rollout did."""

    metrics: dict[str, float] = field(default_factory=dict)
    updates: int = 0
    skipped: int = 0
    """Updates left out because the norm of the gradient was not finite."""


class PolicyUpdate:
    """One rollout's updates: mini-batches, micro-batches, losses, optimiser steps.

    Old log-probabilities are those of the policy before the first update. With a single update the forward pass
    itself gives them; with more they are computed once before.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        reference: PreTrainedModel | None,
        strategy: SingleProcess,
        policy_loss: PolicyLoss,
        trainer: PolicyGradientConfig,
        algorithm: AlgorithmConfig,
        *,
        temperature: float = 1.0,
    ) -> None:
        self._model, self._reference, self._strategy = model, reference, strategy
        self._policy_loss, self._trainer, self._algorithm = policy_loss, trainer, algorithm
        self._temperature = temperature

    @property
    def updates_per_rollout(self) -> int:
        """How many optimiser steps each rollout gets."""
        return self._trainer.epochs * self._trainer.updates_per_rollout

    def run(self, sequences: SequenceOf[Sequence], *, learning_rate: float, key: SequenceOf[object]) -> Updated:
        """Update the policy on a rollout's sequences.

        Args:
            sequences: with advantages and the engine's log-probabilities; without trained tokens they do nothing
            learning_rate: of these updates
            key: what the order of mini-batches and the model's own randomness (dropout) derive from
        """
        result = Updated()
        totals: dict[str, float] = {}
        torch.manual_seed(derive_seed("update", *key))
        sequences = [sequence for sequence in sequences if sequence.trained]
        if not sequences:
            return result
        old = self._known_logprobs(self._model, sequences) if self.updates_per_rollout > 1 else None
        reference = self._known_logprobs(self._reference, sequences) if self._reference is not None else None
        self._model.train()
        for epoch in range(self._trainer.epochs):
            for minibatch in self._minibatches(len(sequences), (*key, epoch)):
                numbers = self._accumulate(sequences, minibatch, old, reference)
                if numbers is None:
                    continue
                norm, updated = self._strategy.step(learning_rate, self._trainer.max_gradient_norm)
                result.updates += updated
                result.skipped += not updated
                numbers["gradient_norm"] = norm
                for name, value in numbers.items():
                    combine = max if name.endswith("/max") else float.__add__
                    totals[name] = combine(totals[name], value) if name in totals else value
        self._model.train(False)
        count = max(1, result.updates + result.skipped)
        result.metrics = {n: value if n.endswith("/max") else value / count for n, value in totals.items()}
        return result

    def _minibatches(self, count: int, key: SequenceOf[object]) -> list[list[int]]:
        parts = min(self._trainer.updates_per_rollout, count)
        order = list(range(count))
        if parts > 1:
            random.Random(derive_seed("minibatches", *key)).shuffle(order)
        return [sorted(order[part * count // parts : (part + 1) * count // parts]) for part in range(parts)]

    def _accumulate(
        self,
        sequences: SequenceOf[Sequence],
        members: SequenceOf[int],
        old: list[Tensor] | None,
        reference: list[Tensor] | None,
    ) -> dict[str, float] | None:
        """Gradient of one mini-batch; returns its means over the tokens that were fed, or None without a gradient.

        Sequences of advantage zero count in the normaliser but are fed only where a KL or entropy term needs them.
        """
        weights = token_weights([sequences[i].trained for i in members], self._algorithm.aggregation)
        fed = [
            (i, replace(sequences[i], weight=weight))
            for i, weight in zip(members, weights, strict=True)
            if sequences[i].advantage or self._algorithm.entropy or self._reference is not None
        ]
        if not fed:
            return None
        members, chosen = zip(*fed, strict=True)
        share = sum(sequence.weight * sequence.trained for sequence in chosen)
        totals: dict[str, float] = {}
        with packed_attention_of(self._model):
            for batch in pack(chosen, self._trainer.max_tokens_per_batch, self._model.device):
                known = [_of_batch(known, batch, members) for known in (old, reference)]
                loss, metrics = self._loss(batch, *known)
                self._strategy.backward(loss)
                for name, value in metrics.items():
                    number = float(value.detach())
                    if name.endswith("/max"):
                        totals[name] = max(number, totals.get(name, 0.0))
                    elif name.startswith("loss/"):
                        totals[name] = totals.get(name, 0.0) + number
                    else:
                        totals[name] = totals.get(name, 0.0) + number / share
        return totals

    def _loss(
        self, batch: MicroBatch, old_M: Tensor | None, reference_M: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        algorithm = self._algorithm
        logprobs_M, entropy_M = batch_logprobs(self._model, batch, temperature=self._temperature)
        old_M = logprobs_M.detach() if old_M is None else old_M
        weights_M, advantages_M = batch.weights_M.to(logprobs_M), batch.advantages_M.to(logprobs_M)
        policy_loss, metrics = self._policy_loss(
            logprobs_M, old_M, advantages_M, weights_M, clip_low=algorithm.clip_low, clip_high=algorithm.clip_high
        )
        total = policy_loss
        bonus = entropy_bonus(entropy_M, weights_M)
        if algorithm.entropy:
            total = total + algorithm.entropy * bonus
        if reference_M is not None:
            divergence = (weights_M * kl(logprobs_M, reference_M, algorithm.kl.estimator)).sum()
            total = total + algorithm.kl.coefficient * divergence
            metrics["kl/mean"] = divergence.detach()
        metrics |= {"loss/policy": policy_loss.detach(), "loss/total": total.detach(), "entropy/mean": -bonus.detach()}
        if self._temperature == 1.0:
            # The engine's numbers are at temperature 1, so only then are the two comparable.
            gap_M = (old_M - batch.engine_logprobs_M.to(old_M)).abs().nan_to_num(nan=0.0)
            metrics |= {"logprob_gap/max": gap_M.max(), "logprob_gap/mean": (weights_M * gap_M).sum()}
        return total, metrics

    @torch.no_grad()
    def _known_logprobs(self, model: PreTrainedModel, sequences: SequenceOf[Sequence]) -> list[Tensor]:
        """Log-probabilities of each sequence's trained tokens under a model that is not being trained here."""
        found: dict[int, Tensor] = {}
        with packed_attention_of(model):
            for batch in pack(sequences, self._trainer.max_tokens_per_batch, model.device):
                logprobs_M, _ = batch_logprobs(model, batch, temperature=self._temperature)
                owners, counts = torch.unique_consecutive(batch.sequence_M, return_counts=True)
                found |= dict(zip(owners.tolist(), torch.split(logprobs_M, counts.tolist()), strict=True))
        return [found[i] for i in range(len(sequences))]


def _of_batch(known: list[Tensor] | None, batch: MicroBatch, members: SequenceOf[int]) -> Tensor | None:
    """Known log-probabilities in the order of a micro-batch's trained tokens."""
    if known is None:
        return None
    owners = torch.unique_consecutive(batch.sequence_M)
    return torch.cat([known[members[i]] for i in owners.tolist()])


__all__: list[Any] = ["PolicyLoss", "PolicyUpdate", "Updated"]
