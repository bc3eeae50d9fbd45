"""From a rollout's groups to optimiser updates."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from rlcore.errors import UserError
from rlcore.types import Group, derive_seed
from torch import Tensor
from transformers import PreTrainedModel

from rlcore_trainer.advantages import lambda_returns
from rlcore_trainer.algorithm_config import AlgorithmConfig
from rlcore_trainer.attention import packed_attention_of
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.critic import Critic, explained_variance
from rlcore_trainer.experience import Experience
from rlcore_trainer.logprobs import fused_loss, logprobs_and_entropy
from rlcore_trainer.losses import kl, next_coefficient, token_weights
from rlcore_trainer.model import batch_logprobs, hidden_before, output_head
from rlcore_trainer.needs import Injected
from rlcore_trainer.objective import Objective, Rows, add_metrics, chosen, rows_of, split
from rlcore_trainer.packing import MicroBatch, Sequence, pack
from rlcore_trainer.reference import AdapterReference
from rlcore_trainer.strategies.single import SingleProcess


@dataclass(slots=True)
class Updated:
    """What the updates on one rollout did."""

    metrics: dict[str, float] = field(default_factory=dict)
    updates: int = 0
    """Updates of the policy."""
    skipped: int = 0
    """Updates left out because the norm of the gradient was not finite."""
    kl: float | None = None
    """The measured divergence from the reference in nats a token; None where nothing was measured."""


@dataclass(slots=True)
class _Known:
    """What is computed on a rollout once, before its first update, by index of the trajectory."""

    old: Rows | None = None
    reference: Rows | None = None
    values: Rows | None = None
    returns: Rows | None = None

    def of(self, members: list[int]) -> _Known:
        """What is known of some trajectories, under their places in ``members``."""
        rows = {name: getattr(self, name) for name in ("old", "reference", "values", "returns")}
        return _Known(**{name: None if found is None else chosen(found, members) for name, found in rows.items()})


class PolicyUpdate:
    """One rollout's updates: advantages, mini-batches, micro-batches, losses, optimiser steps.

    Old log-probabilities are those of the policy before the first update. With a single update the forward pass
    itself gives them; with more, or with a KL term in the reward, they are computed once before.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        reference: PreTrainedModel | AdapterReference | None,
        critic: Critic | None,
        strategy: SingleProcess,
        advantage: Callable[..., Any],
        policy_loss: Callable[..., Any],
        trainer: PolicyGradientConfig,
        algorithm: AlgorithmConfig,
        *,
        temperature: float = 1.0,
        comparable: bool | None = None,
        max_response_tokens: int = 256,
    ) -> None:
        """Take the parts of an update.

        Args:
            model: the policy
            reference: what a KL term is measured from; never run while the coefficient is 0
            critic: for an advantage that reads values
            strategy: prepared with the policy
            advantage: estimator; called with what its signature names
            policy_loss: likewise
            trainer: how many updates, and how much goes through the model at once
            algorithm: everything else
            temperature: at which the rollout was sampled, and at which log-probabilities are computed
            comparable: whether the engine's log-probabilities are of the distribution that is trained; None takes
                that from the temperature
            max_response_tokens: the length that aggregation and the penalty for long answers mean

        Raises:
            UserError: a function asks for what is not there: see `rlcore_trainer.needs`, or a critic's values.
        """
        self._model, self._reference, self._critic, self._strategy = model, reference, critic, strategy
        self._trainer, self._algorithm, self._temperature = trainer, algorithm, temperature
        self._max_response_tokens = max_response_tokens
        keys = {name: getattr(algorithm, name) for name in AlgorithmConfig.model_fields}
        keys["max_response_tokens"] = max_response_tokens
        self._advantage = Injected("advantage", advantage, keys=keys, own=algorithm.options)
        if self._advantage.reads("values_NT") and critic is None:
            raise UserError("this advantage reads the values of a critic", mend="set critic.model=copy, or head")
        loss = Injected("loss", policy_loss, keys=keys, own=algorithm.options)
        comparable = temperature == 1.0 if comparable is None else comparable
        self._objective = Objective(loss, algorithm, comparable=comparable)
        self._coefficient = algorithm.kl.coefficient

    @property
    def updates_per_rollout(self) -> int:
        """How many optimiser steps each rollout gets."""
        return self._trainer.epochs * self._trainer.updates_per_rollout

    @property
    def reads_baselines(self) -> bool:
        """Whether the advantage needs the score of a greedy answer to each task."""
        return self._advantage.reads("baselines_N")

    def state(self) -> dict[str, Any]:
        """Everything that `restore` needs beyond the policy and its optimiser: tensors and numbers."""
        critic = {} if self._critic is None else {"critic": self._critic.state()}
        asked = self._algorithm.kl.model_dump(include={"controller", "coefficient"})
        return {"kl_coefficient": self._coefficient, "kl_asked": asked, **critic}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`; what the configuration has changed since then starts as the configuration says.

        A critic that the state does not know stays as it was made. Raises as `Critic.restore`.
        """
        asked = self._algorithm.kl.model_dump(include={"controller", "coefficient"})
        if asked["controller"] == "adaptive" and state.get("kl_asked") == asked:
            self._coefficient = float(state["kl_coefficient"])
        if self._critic is not None and "critic" in state:
            self._critic.restore(state["critic"])

    def run(
        self,
        groups: SequenceOf[Group],
        *,
        learning_rate: float,
        key: SequenceOf[object],
        baselines: Mapping[int, float] | None = None,
        critic_only: bool = False,
    ) -> Updated:
        """Update the policy, and the critic where there is one, on a rollout.

        Args:
            groups: of the rollout; trajectories without a score are left out
            learning_rate: of these updates
            key: what shuffling, the order of mini-batches and the model's own randomness (dropout) derive from
            baselines: the score of the greedy answer, by index of the group
            critic_only: leave the policy as it is
        """
        torch.manual_seed(derive_seed("update", *key, *self._strategy.place.key))
        experience = Experience.of(
            groups,
            self._algorithm,
            max_response_tokens=self._max_response_tokens,
            key=key,
            grouped=self._advantage.reads("groups_N"),
            baselines=(baselines or {}) if self.reads_baselines else None,
        )
        result = Updated(metrics={**experience.metrics, "tokens/trained": 0.0})
        if not len(experience):
            return result
        known = _Known()
        penalties_NT = self._penalties(experience, known, result)
        sequences = self._with_advantages(experience, known, penalties_NT, result)
        if not critic_only:
            fed = [i for i in experience.trained if self._is_fed(sequences[i])]
            if self.updates_per_rollout > 1 and known.old is None:
                known.old = self._logprobs(self._model, sequences, fed)
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
        """What a KL term in the reward takes off each written token [N, T]; None without such a term."""
        if not self._pulls("reward"):
            return None
        written = [i for i, count in enumerate(experience.lengths_N.tolist()) if count]
        known.old = old = self._logprobs(self._model, experience.sequences, written)
        known.reference = reference = self._reference_logprobs(experience.sequences, written)
        estimator = self._algorithm.kl.estimator
        divergence_NT = experience.padded({i: kl(old[i].double(), reference[i].double(), estimator) for i in written})
        result.metrics["kl/mean"] = float(divergence_NT.sum()) / max(1, int(experience.lengths_N.sum()))
        return self._coefficient * divergence_NT

    def _with_advantages(
        self, experience: Experience, known: _Known, penalties_NT: Tensor | None, result: Updated
    ) -> list[Sequence]:
        mask_NT, algorithm = experience.mask_NT, self._algorithm
        rewards_N, rewards_NT = experience.rewards_N, experience.token_rewards(penalties_NT)
        data = {
            "rewards_N": rewards_N if penalties_NT is None else rewards_N - penalties_NT.sum(1),
            "rewards_NT": rewards_NT,
            "groups_N": experience.groups_N,
            "lengths_N": experience.lengths_N,
            "baselines_N": experience.baselines_N,
            "mask_NT": mask_NT,
        }
        if self._critic is not None:
            known.values = self._critic.values(experience.sequences)
            values_NT = experience.padded(known.values)
            returns_NT = lambda_returns(
                rewards_NT, values_NT, mask_NT, gamma=algorithm.gamma, gae_lambda=algorithm.gae_lambda
            )
            device = self._model.device
            known.returns = {i: returns_NT[i, : len(row)].to(device) for i, row in known.values.items()}
            data["values_NT"] = values_NT
            explained = explained_variance(values_NT[mask_NT], returns_NT[mask_NT])
            if explained is not None:
                result.metrics["critic/explained_variance"] = explained
        advantages, metrics = self._advantage(data)
        result.metrics |= metrics
        of_tokens_NT = advantages if advantages.ndim == 2 else advantages[:, None].expand(mask_NT.shape)
        if mask_NT.any():
            written = of_tokens_NT[mask_NT]
            result.metrics["advantage/mean"] = float(written.mean())
            result.metrics["advantage/std"] = float(written.std(correction=0))
        lengths = experience.lengths_N.tolist()
        rows = advantages.tolist()
        return [
            replace(sequence, advantage=row[:length] if isinstance(row, list) else row)
            for sequence, row, length in zip(experience.sequences, rows, lengths, strict=True)
        ]

    def _is_fed(self, sequence: Sequence) -> bool:
        """Whether a sequence has any part in the gradient of the policy; it counts in the normaliser all the same."""
        advantage = sequence.advantage
        pushed = any(advantage) if isinstance(advantage, SequenceOf) else bool(advantage)
        shared = self._critic is not None and self._critic.shares_trunk and self._critic.coefficient > 0
        return pushed or bool(self._algorithm.entropy) or self._pulls("loss") or shared

    def _reference_logprobs(self, sequences: SequenceOf[Sequence], members: SequenceOf[int]) -> Rows:
        """As `_logprobs`, under the reference."""
        if isinstance(self._reference, AdapterReference):
            with self._reference.standing_in() as model:
                return self._logprobs(model, sequences, members)
        return self._logprobs(self._reference, sequences, members)

    @torch.no_grad()
    def _logprobs(
        self, model: PreTrainedModel | None, sequences: SequenceOf[Sequence], members: SequenceOf[int]
    ) -> Rows:
        """Log-probabilities of the written tokens of some sequences under a model that is not being trained here."""
        assert model is not None
        found: Rows = {}
        wanted = [sequences[i] for i in members]
        with packed_attention_of(model):
            for batch in pack(wanted, self._trainer.max_tokens_per_batch, model.device, self._strategy.place):
                found |= split(batch_logprobs(model, batch, temperature=self._temperature)[0], batch.sequence_M)
        return {members[place]: row for place, row in self._strategy.union(found).items()}

    # Updates

    def _learn(
        self,
        experience: Experience,
        sequences: SequenceOf[Sequence],
        known: _Known,
        result: Updated,
        learning_rate: float,
        key: SequenceOf[object],
        *,
        critic_only: bool,
    ) -> None:
        totals: dict[str, list[float]] = {}
        self._model.train()
        for epoch in range(self._trainer.epochs):
            for members in self._minibatches(experience, (*key, epoch)):
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
                of_policy = None if critic_only else self._accumulate(sequences, members, known)
                if of_policy is not None:
                    norm, updated = self._strategy.step(learning_rate, self._trainer.max_gradient_norm)
                    if self._critic is not None and self._critic.shares_trunk:
                        # The gradient of a head is of the same loss: it is no better than the policy's.
                        if updated:
                            _, stepped = self._critic.step(learning_rate)
                        else:
                            self._critic.forget()
                        numbers["critic/skipped"] = float(not (updated and stepped))
                    result.updates += updated
                    result.skipped += not updated
                    numbers |= of_policy | {"gradient_norm": norm}
                for name, value in numbers.items():
                    totals.setdefault(name, []).append(value)
        self._model.train(False)
        if totals:
            result.metrics["tokens/trained"] = float(sum(sequences[i].trained for i in experience.trained))
        for name, values in totals.items():
            total = max(values) if name.endswith("/max") else sum(values)
            result.metrics[name] = total if name.endswith(("/max", "/skipped")) else total / len(values)

    def _minibatches(self, experience: Experience, key: SequenceOf[object]) -> list[list[int]]:
        """The trajectories of each update of an epoch, whole groups while there are enough: siblings share a prompt."""
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
        self, sequences: SequenceOf[Sequence], minibatch: SequenceOf[int], known: _Known
    ) -> dict[str, float] | None:
        """Gradient of one mini-batch; returns its means over the tokens that were fed, or None without a gradient.

        Sequences of advantage zero count in the normaliser but are fed only where another term needs them.
        """
        counts = [sequences[i].trained for i in minibatch]
        aggregation = self._algorithm.aggregation or "token-mean"
        weights = token_weights(counts, aggregation, max_response_tokens=self._max_response_tokens)
        fed = [(i, weight) for i, weight in zip(minibatch, weights, strict=True) if self._is_fed(sequences[i])]
        if not fed:
            return None
        members = [i for i, _ in fed]
        weighted = [replace(sequences[i], weight=weight) for i, weight in fed]
        share = sum(sequence.weight * sequence.trained for sequence in weighted)
        rows = known.of(members)
        value_weight = 1.0 / sum(counts)
        totals: dict[str, float] = {}
        with packed_attention_of(self._model):
            for batch in pack(weighted, self._trainer.max_tokens_per_batch, self._model.device, self._strategy.place):
                loss, parts = self._loss(batch, rows, value_weight)
                self._strategy.backward(loss)
                for metrics in parts:
                    add_metrics(totals, metrics)
        return self._objective.means(self._strategy.sum(totals), share)

    def _loss(self, batch: MicroBatch, known: _Known, value_weight: float) -> tuple[Tensor, list[dict[str, Tensor]]]:
        """The loss of a micro-batch, and metrics of its parts."""
        hidden_MD = hidden_before(self._model, batch)
        objective, before = self._objective.of(
            batch,
            old_M=None if known.old is None else rows_of(known.old, batch.sequence_M),
            reference_M=rows_of(known.reference, batch.sequence_M)
            if known.reference is not None and self._pulls("loss")
            else None,
            coefficient=self._coefficient,
        )
        head_VD = output_head(self._model)
        if self._objective.is_token_wise(old_known=known.old is not None):
            fused = fused_loss(hidden_MD, head_VD, batch.targets_M, objective, temperature=self._temperature)
            loss = fused.loss
            parts = fused.metrics
        else:
            logprobs_M, entropy_M = logprobs_and_entropy(
                hidden_MD, head_VD, batch.targets_M, temperature=self._temperature
            )
            loss, of_loss = objective(slice(None), logprobs_M, entropy_M)
            parts = [of_loss]
        critic = self._critic
        if critic is not None and critic.shares_trunk:
            assert known.values is not None
            assert known.returns is not None
            values_M = critic.read(hidden_MD)
            old_M, returns_M = rows_of(known.values, batch.sequence_M), rows_of(known.returns, batch.sequence_M)
            value_loss, of_values = critic.loss(values_M, old_M, returns_M, torch.full_like(values_M, value_weight))
            added = critic.coefficient * value_loss
            loss = loss + added
            parts.append(of_values | {"critic/loss": value_loss, "loss/total": added})
        return loss, [before, *parts]
