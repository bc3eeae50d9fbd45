"""Compute optimiser updates from the groups of a rollout."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from rlcore.errors import UserError
from rlcore.runs.progress import Meter, silent
from rlcore.types import Group, derive_seed
from torch import Tensor

from rlcore_trainer.algorithms.advantages.scan import lambda_returns
from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.algorithms.configured import advantage_traits, loss_traits
from rlcore_trainer.algorithms.interface import Advantage, Loss
from rlcore_trainer.algorithms.losses.aggregation import token_weights
from rlcore_trainer.algorithms.losses.divergence import kl, next_coefficient
from rlcore_trainer.algorithms.outputs import advantages_of
from rlcore_trainer.batching.experience import Experience
from rlcore_trainer.batching.packing import MicroBatch, TrainingSequence, pack
from rlcore_trainer.batching.sequence_metrics import Rows, add_metrics, chosen, rows_of, split
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.distributed.strategy import Strategy
from rlcore_trainer.optim.advantage_inputs import advantage_inputs
from rlcore_trainer.optim.critic import Critic, explained_variance
from rlcore_trainer.optim.objective import Objective
from rlcore_trainer.policy.policy import Policy, Reference


@dataclass(slots=True)
class Updated:
    """The result of the updates on one rollout."""

    metrics: dict[str, float] = field(default_factory=dict)
    updates: int = 0
    """Number of updates of the policy."""
    kl: float | None = None
    """The measured divergence from the reference in nats per token; None if it was not measured."""


@dataclass(slots=True)
class _Known:
    """Data computed once on a rollout before its first update, by index of the sequence."""

    old: Rows | None = None
    reference: Rows | None = None
    values: Rows | None = None
    returns: Rows | None = None

    def of(self, members: list[int]) -> _Known:
        """Return the data of some sequences, indexed by their positions in ``members``."""
        rows = {name: getattr(self, name) for name in ("old", "reference", "values", "returns")}
        return _Known(**{name: None if found is None else chosen(found, members) for name, found in rows.items()})


def _unshown(phase: str, total: int, unit: str) -> Meter:
    return Meter(phase, total, unit, silent)


class PolicyUpdate:
    """Updates the policy on a rollout: advantages, mini-batches, micro-batches, losses and optimiser steps.

    Old log-probabilities are those of the policy before the first update. With a single update, the forward pass itself
    provides them. With several updates, or with a KL term in the reward, they are computed once beforehand.
    """

    def __init__(
        self,
        policy: Policy,
        reference: Reference | None,
        critic: Critic | None,
        strategy: Strategy,
        advantage: Advantage,
        policy_loss: Loss,
        trainer: PolicyGradientConfig,
        algorithm: AlgorithmConfig,
        *,
        temperature: float = 1.0,
        comparable: bool | None = None,
        max_response_tokens: int = 256,
        progress: Callable[[str, int, str], Meter] = _unshown,
    ) -> None:
        """Store the components of an update.

        Args:
            policy: the policy to train
            reference: the policy relative to which a KL term is measured; never run while the coefficient is 0
            critic: critic for advantages that need one
            strategy: strategy prepared with the policy
            advantage: the advantage estimator
            policy_loss: the policy loss, the first term of the objective
            trainer: the number of updates and the batch sizes
            algorithm: all other settings
            temperature: temperature at which the rollout was sampled and log-probabilities are computed
            comparable: whether the engine's log-probabilities are of the trained distribution; None derives this from
                the temperature
            max_response_tokens: maximum length used by the aggregation and the penalty for long answers
            progress: makes a meter for a phase, its total and its unit

        Raises:
            UserError: the advantage needs a critic, but none is given.
        """
        self._policy, self._reference, self._critic, self._strategy = policy, reference, critic, strategy
        self._trainer, self._algorithm, self._temperature = trainer, algorithm, temperature
        self._max_response_tokens, self._progress = max_response_tokens, progress
        self._advantage, self._traits = advantage, advantage_traits(advantage)
        if self._traits.needs_critic and critic is None:
            raise UserError("this advantage needs the values of a critic", fix="set critic.model=copy or head")
        self._aggregation = algorithm.aggregation or loss_traits(policy_loss).aggregation
        comparable = temperature == 1.0 if comparable is None else comparable
        self._objective = Objective(policy_loss, algorithm, comparable=comparable)
        self._coefficient = algorithm.kl.coefficient

    @property
    def updates_per_rollout(self) -> int:
        """Number of optimiser steps per rollout."""
        return self._trainer.epochs * self._trainer.updates_per_rollout

    @property
    def reads_baselines(self) -> bool:
        """Whether the advantage needs the score of a greedy answer to each task."""
        return self._traits.needs_baseline

    def state(self) -> dict[str, Any]:
        """Return the data that `restore` needs in addition to the policy and its optimiser, as tensors and numbers."""
        critic = {} if self._critic is None else {"critic": self._critic.state()}
        asked = self._algorithm.kl.model_dump(include={"controller", "coefficient"})
        return {"kl_coefficient": self._coefficient, "kl_asked": asked, **critic}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state`. Settings that have changed since then start from the configuration.

        A critic that is missing from the state stays newly initialised. Raises as `Critic.restore`.
        """
        asked = self._algorithm.kl.model_dump(include={"controller", "coefficient"})
        if asked["controller"] == "adaptive" and state.get("kl_asked") == asked:
            self._coefficient = float(state["kl_coefficient"])
        if self._critic is not None and "critic" in state:
            self._critic.restore(state["critic"])

    def run(
        self,
        groups: Sequence[Group],
        *,
        learning_rate: float,
        key: Sequence[object],
        baselines: Mapping[int, float] | None = None,
        critic_only: bool = False,
    ) -> Updated:
        """Update the policy, and the critic if there is one, on a rollout.

        Args:
            groups: groups of the rollout; trajectories without a score are ignored
            learning_rate: learning rate of these updates
            key: random key for shuffling, the order of mini-batches and the model's own randomness (dropout)
            baselines: the score of the greedy answer, by index of the group
            critic_only: whether to leave the policy unchanged
        """
        torch.manual_seed(derive_seed("update", *key, *self._strategy.rank.key))
        experience = Experience.of(
            groups,
            self._algorithm,
            max_response_tokens=self._max_response_tokens,
            key=key,
            grouped=self._traits.compares_siblings,
            baselines=(baselines or {}) if self.reads_baselines else None,
        )
        result = Updated(metrics={**experience.metrics, "tokens/trained": 0.0})
        if not len(experience):
            return result
        known = _Known()
        penalties_NT = self._penalties(experience, known, result)
        sequences = self._with_advantages(experience, known, penalties_NT, result)
        if not critic_only:
            fed = [i for i in experience.sequences_of(experience.trained) if self._is_fed(sequences[i])]
            if self.updates_per_rollout > 1 and known.old is None:
                known.old = self._logprobs(self._policy, sequences, fed)
            if self._pulls("loss") and known.reference is None:
                known.reference = self._reference_logprobs(sequences, fed)
        self._learn(experience, sequences, known, result, learning_rate, key, critic_only=critic_only)
        result.kl = result.metrics.get("kl/mean")
        if self._coefficient:
            result.metrics["kl/coefficient"] = self._coefficient
        if self._algorithm.kl.controller == "adaptive" and result.kl is not None and not critic_only:
            self._coefficient = next_coefficient(
                self._coefficient,
                result.kl,
                target_kl=self._algorithm.kl.target_kl,
                horizon=self._algorithm.kl.horizon,
                trajectories=len(experience),
            )
        return result

    # Before the first update

    def _pulls(self, target: str) -> bool:
        return self._coefficient > 0 and self._reference is not None and self._algorithm.kl.target == target

    def _penalties(self, experience: Experience, known: _Known, result: Updated) -> Tensor | None:
        """Return the penalty of a KL term in the reward for each written token [N, T]; None without such a term."""
        if not self._pulls("reward"):
            return None
        written = experience.sequences_of(range(len(experience)))
        known.old = old = self._logprobs(self._policy, experience.sequences, written)
        known.reference = reference = self._reference_logprobs(experience.sequences, written)
        estimator = self._algorithm.kl.estimator
        divergence_NT = experience.padded({i: kl(old[i].double(), reference[i].double(), estimator) for i in written})
        result.metrics["kl/mean"] = float(divergence_NT.sum()) / max(1, int(experience.lengths_N.sum()))
        return self._coefficient * divergence_NT

    def _with_advantages(
        self, experience: Experience, known: _Known, penalties_NT: Tensor | None, result: Updated
    ) -> list[TrainingSequence]:
        values_NT = bootstrap_N = None
        if self._critic is not None:
            known.values = self._critic.values(experience.sequences)
            values_NT = experience.padded(known.values)
            bootstrap_N = self._critic.left_values(experience)
        inputs = advantage_inputs(
            experience,
            penalties_NT=penalties_NT,
            values_NT=values_NT,
            bootstrap_N=bootstrap_N,
            baselines=self.reads_baselines,
        )
        mask_NT, output = inputs.mask_NT, advantages_of(self._advantage, inputs)
        result.metrics |= {name: float(value) for name, value in output.metrics.items()}
        if values_NT is not None and known.values is not None:
            returns_NT = output.returns_NT
            if returns_NT is None:
                returns_NT = lambda_returns(inputs.rewards_NT, values_NT, mask_NT)
            device = self._policy.device
            known.returns = {i: row.to(device) for i, row in experience.rows(returns_NT).items()}
            explained = explained_variance(values_NT[mask_NT], returns_NT[mask_NT])
            if explained is not None:
                result.metrics["critic/explained_variance"] = explained
        advantages = output.advantages
        of_tokens_NT = advantages if advantages.ndim == 2 else advantages[:, None].expand(mask_NT.shape)
        if mask_NT.any():
            written = of_tokens_NT[mask_NT]
            result.metrics["advantage/mean"] = float(written.mean())
            result.metrics["advantage/std"] = float(written.std(correction=0))
        return experience.with_advantages(advantages)

    def _is_fed(self, sequence: TrainingSequence) -> bool:
        """Return whether a sequence contributes to the policy gradient. The normaliser counts it in either case."""
        advantage = sequence.advantage
        pushed = bool(advantage.any()) if isinstance(advantage, Tensor) else bool(advantage)
        shared = self._critic is not None and self._critic.shares_trunk and self._critic.coefficient > 0
        return pushed or bool(self._algorithm.entropy) or self._pulls("loss") or shared

    def _reference_logprobs(self, sequences: Sequence[TrainingSequence], members: Sequence[int]) -> Rows:
        """Return the log-probabilities under the reference; see `_logprobs`."""
        assert self._reference is not None
        with self._reference.standing_in() as policy:
            return self._logprobs(policy, sequences, members)

    @torch.no_grad()
    def _logprobs(self, policy: Policy, sequences: Sequence[TrainingSequence], members: Sequence[int]) -> Rows:
        """Return log-probabilities of the written tokens of some sequences under a policy, without gradients."""
        found: Rows = {}
        wanted = [sequences[i] for i in members]
        with policy.computing(), self._metered("log-probabilities", wanted) as meter:
            for batch in pack(wanted, self._trainer.max_tokens_per_batch, policy.device, self._strategy.rank):
                found |= split(policy.evaluate(batch, temperature=self._temperature)[0], batch.sequence_M)
                meter.advance(len(batch.targets_M), tokens=len(batch.targets_M))
        return {members[place]: row for place, row in self._strategy.union(found).items()}

    def _metered(self, phase: str, sequences: Sequence[TrainingSequence]) -> Meter:
        """Count the trained tokens of this process."""
        total = sum(sequence.trained for sequence in sequences) // self._strategy.rank.world_size
        return self._progress(phase, total, "token")

    # Updates

    def _learn(
        self,
        experience: Experience,
        sequences: Sequence[TrainingSequence],
        known: _Known,
        result: Updated,
        learning_rate: float,
        key: Sequence[object],
        *,
        critic_only: bool,
    ) -> None:
        totals: dict[str, list[float]] = {}
        self._policy.train()
        for epoch in range(self._trainer.epochs):
            for minibatch in self._minibatches(experience, (*key, epoch)):
                members = experience.sequences_of(minibatch)
                numbers: dict[str, float] = {}
                if self._critic is not None and (critic_only or not self._critic.shares_trunk):
                    assert known.values is not None
                    assert known.returns is not None
                    numbers |= self._critic.learn(
                        [sequences[i] for i in members],
                        chosen(known.values, members),
                        chosen(known.returns, members),
                        learning_rate=learning_rate,
                    )
                of_policy = None if critic_only else self._accumulate(experience, sequences, minibatch, known)
                if of_policy is not None:
                    norm, updated = self._strategy.step(learning_rate, self._trainer.max_gradient_norm)
                    if updated and self._critic is not None and self._critic.shares_trunk:
                        numbers["critic/gradient_norm"], _ = self._critic.step(learning_rate)
                    result.updates += updated
                    numbers |= of_policy | {"gradient_norm": norm}
                for name, value in numbers.items():
                    totals.setdefault(name, []).append(value)
        self._policy.train(False)
        if totals:
            result.metrics["tokens/trained"] = float(experience.lengths_N[experience.trained].sum())
        for name, values in totals.items():
            result.metrics[name] = max(values) if name.endswith("/max") else sum(values) / len(values)

    def _minibatches(self, experience: Experience, key: Sequence[object]) -> list[list[int]]:
        """Return the trajectories of each update of an epoch, in whole groups if possible: siblings share a prompt."""
        trained = experience.trained
        parts = min(self._trainer.updates_per_rollout, len(trained))
        if parts <= 1:
            return [trained] if trained else []
        families: dict[int, list[int]] = {}
        for i in trained:
            families.setdefault(int(experience.groups_N[i]), []).append(i)
        units = list(families.values()) if len(families) >= parts else [[i] for i in trained]
        random.Random(derive_seed("minibatches", *key)).shuffle(units)
        cuts = [part * len(units) // parts for part in range(parts + 1)]
        return [sorted(i for unit in units[cuts[part] : cuts[part + 1]] for i in unit) for part in range(parts)]

    def _accumulate(
        self, experience: Experience, sequences: Sequence[TrainingSequence], minibatch: Sequence[int], known: _Known
    ) -> dict[str, float] | None:
        """Accumulate the gradient of a mini-batch of trajectories. Return its means over the tokens fed to the model.

        Returns None without a gradient. All segments of a trajectory have its weight. Sequences with zero advantage
        count in the normaliser, but are fed to the model only if another term needs them.
        """
        counts = experience.lengths_N[minibatch].tolist()
        weights = token_weights(counts, self._aggregation, max_response_tokens=self._max_response_tokens)
        members = [i for i in experience.sequences_of(minibatch) if self._is_fed(sequences[i])]
        if not members:
            return None
        weight_of = dict(zip(minibatch, weights, strict=True))
        weighted = [replace(sequences[i], weight=weight_of[experience.parts[i].trajectory]) for i in members]
        share = sum(sequence.weight * sequence.trained for sequence in weighted)
        rows = known.of(members)
        value_weight = 1.0 / sum(counts)
        totals: dict[str, float] = {}
        with self._policy.computing(), self._metered("update", weighted) as meter:
            for batch in pack(weighted, self._trainer.max_tokens_per_batch, self._policy.device, self._strategy.rank):
                loss, parts = self._loss(batch, rows, value_weight)
                self._strategy.backward(loss)
                for metrics in parts:
                    add_metrics(totals, metrics)
                meter.advance(len(batch.targets_M), tokens=len(batch.targets_M))
        return self._objective.means(self._strategy.sum(totals), share)

    def _loss(self, batch: MicroBatch, known: _Known, value_weight: float) -> tuple[Tensor, list[dict[str, Tensor]]]:
        """Return the loss of a micro-batch, and the metrics of its parts."""
        objective, before = self._objective.of(
            batch,
            old_M=None if known.old is None else rows_of(known.old, batch.sequence_M),
            reference_M=rows_of(known.reference, batch.sequence_M)
            if known.reference is not None and self._pulls("loss")
            else None,
            coefficient=self._coefficient,
        )
        token_wise = self._objective.is_token_wise(old_known=known.old is not None)
        loss, parts, features_MD = self._policy.loss(
            batch, objective, temperature=self._temperature, token_wise=token_wise
        )
        critic = self._critic
        if critic is not None and critic.shares_trunk:
            assert known.values is not None
            assert known.returns is not None
            values_M = critic.read(features_MD)
            old_M, returns_M = rows_of(known.values, batch.sequence_M), rows_of(known.returns, batch.sequence_M)
            value_loss, of_values = critic.loss(values_M, old_M, returns_M, torch.full_like(values_M, value_weight))
            added = critic.coefficient * value_loss
            loss = loss + added
            parts.append(of_values | {"critic/loss": value_loss, "loss/total": added})
        return loss, [before, *parts]
