"""Policy-gradient updates in one process: log-probabilities, values of the critic, and optimiser steps.

Axes: ``M`` the trained tokens of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rlcore_trainer.batching.packing import MicroBatch, Minibatch, Share
from rlcore_trainer.batching.sequence_metrics import Captured, Rows, add_metrics, rows_of, split
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.learner.critic import Critic
from rlcore_trainer.learner.distillation import Distillation
from rlcore_trainer.learner.objective import Objective
from rlcore_trainer.learner.trained_policy import ShowsProgress, TrainedPolicy, unshown
from rlcore_trainer.policy.logprobs import LossOfChunk
from rlcore_trainer.policy.policy import DistilledPolicy, Policy, Reference

Which = Literal["policy", "sharpened", "reference", "teacher"]
"""``sharpened`` is the policy at half the temperature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One update of the policy and of its critic, as each process computes it."""

    learning_rate: float
    tokens: int
    """Trained tokens of the mini-batch in all processes, over which the loss of the critic is a mean."""
    weight: float = 0.0
    """Sum of the weights of the policy's tokens in all processes."""
    kl_coefficient: float = 0.0
    policy: Minibatch | None = None
    """What the policy is trained on; None leaves it unchanged."""
    critic: Minibatch | None = None
    """What the critic alone is trained on; None leaves it unchanged."""
    captures: bool = False
    """Whether log-probability and entropy of each trained token are returned."""


class PolicyLearner:
    """What the processes of a run compute for the updates of a policy-gradient trainer.

    Args:
        trained: the policy with its optimiser
        reference: the policy relative to which a KL term is measured; None without one
        critic: the critic; None without one
        distillation: the teacher; None without one
        objective: the loss of a micro-batch
        trainer: the limit of the gradient
        temperature: temperature at which rollouts are sampled and log-probabilities are computed
        progress: makes the meters
    """

    def __init__(
        self,
        trained: TrainedPolicy,
        reference: Reference | None,
        critic: Critic | None,
        objective: Objective,
        trainer: PolicyGradientConfig,
        *,
        temperature: float = 1.0,
        distillation: Distillation | None = None,
        progress: ShowsProgress = unshown,
    ) -> None:
        self.trained, self.reference, self.critic = trained, reference, critic
        self.distillation = distillation
        self._objective, self._trainer, self._temperature, self._progress = objective, trainer, temperature, progress

    def begin_reinforcement(self) -> None:
        """Start from the policy after the warm-up, with a new optimiser."""
        self.trained.restart()
        if self.critic is not None:
            self.critic.follow()
        if self.reference is not None:
            self.reference.follow(self.trained.policy)

    def logprobs(self, share: Share, which: Which) -> Rows:
        """Return the log-probabilities of trained tokens by sequence, without gradients.

        Those of the teacher have its entropies beside them [T, 2].
        """
        if which == "policy":
            return self._logprobs(self.trained.policy, share)
        if which == "sharpened":
            return self._logprobs(self.trained.policy, share, temperature=self._temperature / 2)
        if which == "teacher":
            assert self.distillation is not None
            return self._logprobs(self.distillation.teacher, share, with_entropy=True)
        assert self.reference is not None
        with self.reference.standing_in() as policy:
            return self._logprobs(policy, share)

    def values(self, share: Share) -> Rows:
        """Return the values of the critic of trained tokens by sequence."""
        assert self.critic is not None
        return self._sent(self.critic.values(share))

    def update(self, update: Update) -> tuple[bool, dict[str, float], Captured]:
        """Make an update.

        Returns:
            Whether the policy was updated, the metrics of all processes, and the log-probability and the entropy of
            the tokens of this process before the optimiser step [2, M], if the update asks for them.
        """
        trained, critic, metrics = self.trained, self.critic, dict[str, float]()
        trained.policy.train()
        if critic is not None and update.critic is not None:
            metrics |= critic.learn(self._here(update.critic), tokens=update.tokens, learning_rate=update.learning_rate)
        updated, captured = False, Captured.of([])
        if update.policy is not None:
            means, captured = self._accumulate(self._here(update.policy), update)
            metrics |= means
            norm, updated = trained.optimisation.step(update.learning_rate, self._trainer.max_gradient_norm)
            if updated and critic is not None and critic.shares_trunk:
                metrics["critic/gradient_norm"], _ = critic.step(update.learning_rate)
            metrics["gradient_norm"] = norm
        trained.policy.train(False)
        return updated, metrics, captured

    @torch.no_grad()
    def _logprobs(
        self, policy: Policy, share: Share, *, with_entropy: bool = False, temperature: float | None = None
    ) -> Rows:
        found: Rows = {}
        temperature = temperature or self._temperature
        with policy.computing(), self._progress("log-probabilities", share.trained, "token") as meter:
            for batch in share.micro_batches(policy.device, self.trained.processes.team):
                logprobs_M, entropy_M = policy.evaluate(batch, temperature=temperature)
                values = torch.stack([logprobs_M, entropy_M], 1) if with_entropy else logprobs_M
                found |= split(values, batch.sequence_M)
                meter.advance(len(batch.targets_M), tokens=len(batch.targets_M))
        return self._sent(found)

    def _accumulate(self, minibatch: Minibatch, update: Update) -> tuple[dict[str, float], Captured]:
        """Accumulate the gradient of a mini-batch, and return its means over the tokens of all processes."""
        totals: dict[str, float] = {}
        seen: list[tuple[Tensor, Tensor]] = []
        policy, share = self.trained.policy, minibatch.share
        with policy.computing(), self._progress("update", share.trained, "token") as meter:
            for batch in share.micro_batches(policy.device, self.trained.processes.team):
                chunks: list[tuple[Tensor, Tensor]] | None = [] if update.captures else None
                loss, parts = self._loss(batch, minibatch, update, chunks)
                self.trained.optimisation.backward(loss)
                for metrics in parts:
                    add_metrics(totals, metrics)
                if chunks:
                    seen.append((batch.sequence_M, torch.stack([torch.cat(one) for one in zip(*chunks, strict=True)])))
                meter.advance(len(batch.targets_M), tokens=len(batch.targets_M))
        means = self._objective.means(self.trained.processes.metrics(totals), update.weight)
        return means, Captured.of(seen)  # after the loop, because a copy from a GPU waits for it

    def _loss(
        self,
        batch: MicroBatch,
        known: Minibatch,
        update: Update,
        chunks: list[tuple[Tensor, Tensor]] | None,
    ) -> tuple[Tensor, Sequence[dict[str, Tensor]]]:
        """Return the loss of a micro-batch, and the metrics of its parts.

        Log-probabilities and entropies are added to ``chunks``, if given.
        """
        objective, before = self._objective.of(
            batch,
            old_M=None if known.old is None else rows_of(known.old, batch.sequence_M),
            reference_M=None if known.reference is None else rows_of(known.reference, batch.sequence_M),
            coefficient=update.kl_coefficient,
            teacher_M2=None if known.teacher is None else rows_of(known.teacher, batch.sequence_M),
        )
        token_wise = self._objective.is_token_wise(old_known=known.old is not None)
        policy, of_chunk = self.trained.policy, objective if chunks is None else kept(objective, chunks)
        term = None if self.distillation is None else self.distillation.loss_of(batch)
        if term is None:
            found = policy.loss(batch, of_chunk, temperature=self._temperature, token_wise=token_wise)
        else:
            assert isinstance(policy, DistilledPolicy)
            found = policy.loss(
                batch, of_chunk, temperature=self._temperature, token_wise=token_wise, loss_of_output=term
            )
        loss, parts, values_M = found
        critic = self.critic
        if critic is not None and critic.shares_trunk:
            assert known.values is not None
            assert known.returns is not None
            assert values_M is not None
            old_M, returns_M = rows_of(known.values, batch.sequence_M), rows_of(known.returns, batch.sequence_M)
            weights_M = torch.full_like(values_M, 1.0 / update.tokens)
            value_loss, of_values = critic.loss(values_M, old_M, returns_M, weights_M)
            added = critic.coefficient * value_loss
            loss = loss + added
            parts.append(of_values | {"critic/loss": value_loss, "loss/total": added})
        return loss, [before, *parts]

    def _sent(self, rows: Rows) -> Rows:
        """Return rows as they are sent to the main process: on the CPU, and no views, which pickle copies whole."""
        if self.trained.processes.rank.world_size == 1:
            return rows
        return {i: row.to("cpu", copy=True) for i, row in rows.items()}

    def _here(self, minibatch: Minibatch) -> Minibatch:
        """Return a mini-batch with its rows on the device of the policy."""

        def moved(rows: Rows | None) -> Rows | None:
            device = self.trained.policy.device
            return None if rows is None else {i: row.to(device) for i, row in rows.items()}

        return Minibatch(
            share=minibatch.share,
            old=moved(minibatch.old),
            reference=moved(minibatch.reference),
            teacher=moved(minibatch.teacher),
            values=moved(minibatch.values),
            returns=moved(minibatch.returns),
        )


def kept(loss_of_chunk: LossOfChunk, chunks: list[tuple[Tensor, Tensor]]) -> LossOfChunk:
    """Return the same loss, which adds what it receives to a list: detached, so no gradient changes."""

    def loss(chunk: slice, logprobs_C: Tensor, entropy_C: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        assert entropy_C is not None
        chunks.append((logprobs_C.detach().float(), entropy_C.detach().float()))
        return loss_of_chunk(chunk, logprobs_C, entropy_C)

    return loss
