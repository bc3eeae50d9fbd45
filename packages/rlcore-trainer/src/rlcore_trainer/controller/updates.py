"""Compute optimiser updates from the groups of a rollout.

Axes: ``N`` the scored trajectories, ``T`` the tokens written by the policy, padded on the right.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from rlcore.errors import UserError
from rlcore.types import Group, derive_seed
from torch import Tensor

from rlcore_trainer.algorithms.advantages.gradients import gradient_norms
from rlcore_trainer.algorithms.advantages.scan import lambda_returns
from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.algorithms.configured import advantage_traits, loss_traits
from rlcore_trainer.algorithms.interface import Advantage, AdvantageInputs, Loss
from rlcore_trainer.algorithms.losses.aggregation import token_weights
from rlcore_trainer.algorithms.losses.divergence import kl, next_coefficient
from rlcore_trainer.algorithms.outputs import advantages_of
from rlcore_trainer.batching.experience import Experience, scored_of
from rlcore_trainer.batching.packing import TrainingSequence
from rlcore_trainer.batching.reward_values import RewardWeights
from rlcore_trainer.batching.sequence_metrics import Rows
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.controller.evidence import TrainedTokens, trained_tokens
from rlcore_trainer.learner.critic import explained_variance
from rlcore_trainer.learner.critic_config import CriticConfig
from rlcore_trainer.learner.learner import Learner
from rlcore_trainer.learner.policy_learner import Update, Which


@dataclass(slots=True)
class Updated:
    """The result of the updates on one rollout."""

    metrics: dict[str, float] = field(default_factory=dict)
    updates: int = 0
    """Number of updates of the policy."""
    tokens: TrainedTokens | None = field(default=None, compare=False)
    """Values of the trained tokens; None if none are stored."""
    kl: float | None = None
    """The measured divergence from the reference in nats per token; None if it was not measured."""


class PolicyUpdate:
    """Updates the policy on a rollout: advantages, mini-batches, micro-batches, losses and optimiser steps.

    Old log-probabilities are those of the policy before the first update. With a single update, the forward pass itself
    provides them. With several updates, or with a KL term in the reward, they are computed once beforehand.
    """

    def __init__(
        self,
        learner: Learner,
        advantage: Advantage,
        policy_loss: Loss,
        trainer: PolicyGradientConfig,
        algorithm: AlgorithmConfig,
        *,
        has_reference: bool = False,
        critic: CriticConfig | None = None,
        max_response_tokens: int = 256,
        reward_weights: RewardWeights | None = None,
    ) -> None:
        """Store the components of an update.

        Args:
            learner: computes log-probabilities, values and updates in all processes
            advantage: the advantage estimator
            policy_loss: the policy loss, the first term of the objective
            trainer: the number of updates and the batch sizes
            algorithm: all other settings
            has_reference: whether the learner has a policy relative to which a KL term is measured; it is never run
                while the coefficient is 0
            critic: settings of the learner's critic; None without one
            max_response_tokens: maximum length used by the aggregation and the penalty for long answers
            reward_weights: of the run, for an advantage that ``reads_rewards``

        Raises:
            UserError: the advantage needs a critic, but there is none.
        """
        self._learner, self._trainer, self._algorithm = learner, trainer, algorithm
        self._has_reference, self._max_response_tokens = has_reference, max_response_tokens
        self._reward_weights = reward_weights
        self._critic = None if critic is None or critic.model is None else critic
        self._advantage, self._traits = advantage, advantage_traits(advantage)
        if self._traits.needs_critic and self._critic is None:
            raise UserError("this advantage needs the values of a critic", fix="set critic.model=copy or head")
        self._of_loss = loss_traits(policy_loss)
        self._aggregation = algorithm.aggregation or self._of_loss.aggregation
        self._coefficient = algorithm.kl.coefficient

    @property
    def updates_per_rollout(self) -> int:
        """Number of optimiser steps per rollout."""
        return self._trainer.epochs * self._trainer.updates_per_rollout

    @property
    def reads_baselines(self) -> bool:
        """Whether the advantage needs the score of a greedy answer to each task."""
        return self._traits.needs_baseline

    def too_few(self, group: Group) -> bool:
        """Return whether the updates leave out a group because too few of its trajectories are scored."""
        with_turns = self._algorithm.turn_rewards != "none"
        return not scored_of(group, grouped=self._traits.compares_siblings, with_turns=with_turns)

    def state(self) -> dict[str, Any]:
        """Return the data that `restore` needs, as numbers."""
        asked = self._algorithm.kl.model_dump(include={"controller", "coefficient"})
        return {"kl_coefficient": self._coefficient, "kl_asked": asked}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state`. Settings that have changed since then start from the configuration."""
        asked = self._algorithm.kl.model_dump(include={"controller", "coefficient"})
        if asked["controller"] == "adaptive" and state.get("kl_asked") == asked:
            self._coefficient = float(state["kl_coefficient"])

    def run(
        self,
        groups: Sequence[Group],
        *,
        learning_rate: float,
        key: Sequence[object],
        baselines: Mapping[tuple[int, str], float] | None = None,
        critic_only: bool = False,
    ) -> Updated:
        """Update the policy, and the critic if there is one, on a rollout.

        Args:
            groups: groups of the rollout; trajectories without a score are ignored
            learning_rate: learning rate of these updates
            key: random key for shuffling, the order of mini-batches and the model's own randomness (dropout)
            baselines: the score of the greedy answer, by index of the group and role
            critic_only: whether to leave the policy unchanged
        """
        self._learner.seed("update", *key)
        experience = Experience.of(
            groups,
            self._algorithm,
            max_response_tokens=self._max_response_tokens,
            key=key,
            grouped=self._traits.compares_siblings,
            baselines=(baselines or {}) if self.reads_baselines else None,
            reward_weights=(self._reward_weights or {}) if self._traits.reads_rewards else None,
        )
        result = Updated(metrics={**experience.metrics, "tokens/trained": 0.0})
        if not len(experience):
            return result
        known: dict[str, Rows] = {}
        penalties_NT = self._penalties(experience, known, result)
        sequences = self._with_advantages(experience, known, penalties_NT, result)
        if not critic_only:
            fed = [i for i in experience.sequences_of(experience.trained) if self._is_fed(sequences[i])]
            if self.updates_per_rollout > 1 and "old" not in known:
                known["old"] = self._logprobs(sequences, fed, "policy")
            if self._pulls("loss") and "reference" not in known:
                known["reference"] = self._logprobs(sequences, fed, "reference")
            if self._distils and self._algorithm.distillation.divergence == "sampled":
                known["teacher"] = self._logprobs(sequences, fed, "teacher")
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

    @property
    def _distils(self) -> bool:
        return self._algorithm.distillation.teacher is not None

    def _pulls(self, target: str) -> bool:
        return self._coefficient > 0 and self._has_reference and self._algorithm.kl.target == target

    def _penalties(self, experience: Experience, known: dict[str, Rows], result: Updated) -> Tensor | None:
        """Return the penalty of a KL term in the reward for each written token [N, T]; None without such a term."""
        if not self._pulls("reward"):
            return None
        written = experience.sequences_of(range(len(experience)))
        known["old"] = old = self._logprobs(experience.sequences, written, "policy")
        known["reference"] = reference = self._logprobs(experience.sequences, written, "reference")
        estimator = self._algorithm.kl.estimator
        divergence_NT = experience.padded({i: kl(old[i].double(), reference[i].double(), estimator) for i in written})
        result.metrics["kl/mean"] = float(divergence_NT.sum()) / max(1, int(experience.lengths_N.sum()))
        return self._coefficient * divergence_NT

    def _with_advantages(
        self, experience: Experience, known: dict[str, Rows], penalties_NT: Tensor | None, result: Updated
    ) -> list[TrainingSequence]:
        values_NT = bootstrap_N = None
        if self._critic is not None:
            known["values"] = self._learner.values(dict(enumerate(experience.sequences)))
            values_NT = experience.padded(known["values"])
            bootstrap_N = self._left_values(experience)
        inputs = advantage_inputs(
            experience,
            penalties_NT=penalties_NT,
            values_NT=values_NT,
            bootstrap_N=bootstrap_N,
            gradient_norms_NT=self._gradient_norms(experience, known) if self._traits.reads_gradients else None,
            baselines=self.reads_baselines,
        )
        mask_NT, output = inputs.mask_NT, advantages_of(self._advantage, inputs)
        result.metrics |= {name: float(value) for name, value in output.metrics.items()}
        if values_NT is not None:
            returns_NT = output.returns_NT
            if returns_NT is None:
                returns_NT = lambda_returns(inputs.rewards_NT, values_NT, mask_NT)
            known["returns"] = experience.rows(returns_NT)
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

    def _gradient_norms(self, experience: Experience, known: dict[str, Rows]) -> Tensor:
        """Return ``AdvantageInputs.gradient_norms_NT``."""
        written = experience.sequences_of(range(len(experience)))
        if "old" not in known:
            known["old"] = self._logprobs(experience.sequences, written, "policy")
        old, sharpened = known["old"], self._logprobs(experience.sequences, written, "sharpened")
        return experience.padded({i: gradient_norms(old[i].double(), sharpened[i].double()) for i in written})

    def _is_fed(self, sequence: TrainingSequence) -> bool:
        """Return whether a sequence contributes to the policy gradient. The normaliser counts it in either case."""
        advantage = sequence.advantage
        pushed = bool(advantage.any()) if isinstance(advantage, Tensor) else bool(advantage)
        critic = self._critic
        shared = critic is not None and critic.shares_trunk and critic.coefficient > 0
        pushed = pushed or self._of_loss.trains_zero_advantages
        return pushed or bool(self._algorithm.entropy) or self._pulls("loss") or self._distils or shared

    def _logprobs(self, sequences: Sequence[TrainingSequence], members: Sequence[int], which: Which) -> Rows:
        return self._learner.logprobs({i: sequences[i] for i in members}, which)

    def _left_values(self, experience: Experience) -> Tensor:
        """Return the value of the state in which each trajectory was cut short, 0 for one that ended; float64 [N]."""
        values_N = torch.zeros(len(experience), dtype=torch.float64)
        for trajectory, row in self._learner.values(experience.left_states).items():
            values_N[trajectory] = row[0].to(values_N)
        return values_N

    # Updates

    def _learn(
        self,
        experience: Experience,
        sequences: Sequence[TrainingSequence],
        known: dict[str, Rows],
        result: Updated,
        learning_rate: float,
        key: Sequence[object],
        *,
        critic_only: bool,
    ) -> None:
        totals: dict[str, list[float]] = {}
        first: Rows = {}
        last: Rows = first if self.updates_per_rollout == 1 else {}
        for epoch in range(self._trainer.epochs):
            for minibatch in self._minibatches(experience, (*key, epoch)):
                updated, numbers, captured = self._update(
                    experience, sequences, minibatch, known, learning_rate, critic_only=critic_only
                )
                result.updates += updated
                first |= {i: row for i, row in captured.items() if i not in first}
                last |= captured
                for name, value in numbers.items():
                    totals.setdefault(name, []).append(value)
        if totals:
            result.metrics["tokens/trained"] = float(experience.lengths_N[experience.trained].sum())
        share = self._trainer.token_evidence
        weight = self._algorithm.distillation.coefficient
        result.tokens = trained_tokens(
            experience, sequences, first, last, known, share=share, key=key, distillation=weight
        )
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

    def _update(
        self,
        experience: Experience,
        sequences: Sequence[TrainingSequence],
        minibatch: Sequence[int],
        known: dict[str, Rows],
        learning_rate: float,
        *,
        critic_only: bool,
    ) -> tuple[bool, dict[str, float], Rows]:
        """Update on a mini-batch of trajectories, and return as `Learner.update`.

        All segments of a trajectory have its weight. Sequences with zero advantage count in the normaliser, but are fed
        to the policy only if another term needs them.
        """
        counts = experience.lengths_N[minibatch].tolist()
        weights = token_weights(counts, self._aggregation, max_response_tokens=self._max_response_tokens)
        weight_of = dict(zip(minibatch, weights, strict=True))
        written = {i: sequences[i] for i in experience.sequences_of(minibatch)}
        weighted = {
            i: replace(one, weight=weight_of[experience.parts[i].trajectory])
            for i, one in written.items()
            if not critic_only and self._is_fed(one)
        }
        alone = self._critic is not None and (critic_only or not self._critic.shares_trunk)
        update = Update(
            learning_rate=learning_rate,
            tokens=sum(counts),
            weight=sum(sequence.weight * sequence.trained for sequence in weighted.values()),
            kl_coefficient=self._coefficient,
            captures=self._trainer.token_evidence > 0,
        )
        if not weighted and not alone:
            return False, {}, {}
        rows = {name: found for name, found in known.items() if name != "reference" or self._pulls("loss")}
        return self._learner.update(update, policy=weighted or None, critic=written if alone else None, known=rows)


def advantage_inputs(
    experience: Experience,
    *,
    penalties_NT: Tensor | None,
    values_NT: Tensor | None,
    bootstrap_N: Tensor | None = None,
    gradient_norms_NT: Tensor | None = None,
    baselines: bool,
) -> AdvantageInputs:
    """Return the inputs of an advantage.

    Args:
        experience: the rollout
        penalties_NT: amount that a KL term in the reward subtracts from each token; None without such a term
        values_NT: values of the critic; None without a critic
        bootstrap_N: values of the critic of the states in which trajectories were cut short; None without a critic
        gradient_norms_NT: of an advantage that ``reads_gradients``
        baselines: whether greedy answers were sampled
    """
    rewards_N, reward_values_NR = experience.rewards_N, experience.reward_values_NR
    if reward_values_NR is not None and penalties_NT is not None:
        reward_values_NR = torch.cat(
            [reward_values_NR[:, :-1], reward_values_NR[:, -1:] - penalties_NT.sum(1)[:, None]], 1
        )
    return AdvantageInputs(
        rewards_N=rewards_N if penalties_NT is None else rewards_N - penalties_NT.sum(1),
        groups_N=experience.compared_N,
        lengths_N=experience.lengths_N,
        mask_NT=experience.mask_NT,
        rewards_NT=experience.token_rewards(penalties_NT),
        turns_NT=experience.turns_NT,
        values_NT=values_NT,
        bootstrap_N=bootstrap_N,
        baselines_N=experience.baselines_N if baselines else None,
        reward_values_NR=reward_values_NR,
        reward_weights_NR=experience.reward_weights_NR,
        gradient_norms_NT=gradient_norms_NT,
    )
