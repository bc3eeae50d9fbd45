"""Inputs, outputs and traits of advantage estimators and policy losses.

Axes: ``N`` the scored trajectories of a rollout; ``T`` the tokens that the policy wrote, padded right; ``M`` the
trained tokens of a micro-batch, grouped by sequence.

This module does not import torch, because algorithm configuration is checked before torch is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

Level = Literal["token", "sequence"]
Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageInputs:
    """The inputs of an advantage estimator for one rollout. Values are float64 and finite."""

    rewards_N: Tensor
    """The score of each trajectory, minus penalties."""
    groups_N: Tensor
    """A label of the task and the role of each trajectory, int64 in any order."""
    lengths_N: Tensor
    """Number of tokens that the policy wrote, int64."""
    mask_NT: Tensor
    """True for tokens that the policy wrote, False for padding."""
    rewards_NT: Tensor
    """The reward of each token, minus penalties. The outcome is on the last written token, and a turn's reward on the
    last token of the turn."""
    turns_NT: Tensor
    """The turn index of each written token, int64 from 0; -1 on padding."""
    values_NT: Tensor | None = None
    """The critic's value of the state before each token, in units of reward; None without a critic."""
    bootstrap_N: Tensor | None = None
    """The critic's value of the state in which each trajectory was cut short, 0 for one that ended; None without a
    critic."""
    baselines_N: Tensor | None = None
    """The score of the greedy response to each trajectory's task; None unless ``needs_baseline``."""
    reward_values_NR: Tensor | None = None
    """The value of each reward with a weight, 0 for those of other environments, and a last column with what else is in
    ``rewards_N``, such as penalties; None unless ``reads_rewards``."""
    reward_weights_NR: Tensor | None = None
    """The weight of each of these values in ``rewards_N``; None unless ``reads_rewards``."""
    gradient_norms_NT: Tensor | None = None
    """The squared norm of the gradient of each written token's log-probability by the logits, ``1 − 2π + Σ_v π_v²``;
    None unless ``reads_gradients``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageOutput:
    """The output of an advantage estimator."""

    advantages: Tensor
    """``[N]`` or ``[N, T]``, floating point, finite on written tokens."""
    returns_NT: Tensor | None = None
    """Targets of the critic; None uses the undiscounted return from each token."""
    metrics: Mapping[str, Tensor | float] = field(default_factory=dict)
    """Scalar metrics, added to the step's metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageTraits:
    """Properties of an advantage estimator, declared as ``traits``. The defaults apply if ``traits`` is absent."""

    needs_critic: bool = False
    """The estimator reads ``values_NT``, so ``critic.model`` must be set."""
    needs_baseline: bool = False
    """The estimator reads ``baselines_N``, so a greedy answer to each task is also sampled."""
    compares_siblings: bool = False
    """The estimator compares trajectories within a group, so a group needs at least two. A trajectory that is the only
    one left after failures is dropped."""
    reads_tokens: bool = False
    """The advantages of a trajectory's tokens differ when its rewards are spread over tokens."""
    reads_rewards: bool = False
    """The estimator reads ``reward_values_NR`` and ``reward_weights_NR``."""
    reads_gradients: bool = False
    """The estimator reads ``gradient_norms_NT``, so the probabilities of all tokens are computed before the update: two
    more forward passes. Only for policies over tokens."""


class Advantage(Protocol):
    """An advantage estimator over trajectories or tokens."""

    def __call__(self, inputs: AdvantageInputs, /) -> AdvantageOutput:
        """Return the advantages of a rollout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs:
    """The inputs of a policy loss for a micro-batch, or for a part of one if the loss is token-wise."""

    logprobs_M: Tensor
    """Log-probabilities of the tokens in nats, differentiable."""
    old_logprobs_M: Tensor
    """Log-probabilities before the first update on the rollout, in nats."""
    advantages_M: Tensor
    weights_M: Tensor
    """The share of each token in the global batch, multiplied by its rollout importance weight unless the loss
    ``weighs_rollout``."""
    sequence_M: Tensor
    """A label for each token; adjacent tokens with the same label belong to one sequence."""
    factors_M: Tensor
    """The rollout importance weight of each token; 1 without rollout importance sampling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOutput:
    """The output of a policy loss."""

    loss: Tensor
    """``(weights_M * something_M).sum()``: the weights include one over the normaliser of the global batch, so the
    sum over micro-batches is the mean over the global batch, regardless of how it was split."""
    metrics: Mapping[str, Tensor | float] = field(default_factory=dict)
    """Weighted sums like the loss; metrics whose names end in ``/max`` are combined by maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTraits:
    """Properties of a policy loss, declared as ``traits``. The defaults apply if ``traits`` is absent."""

    token_wise: bool = True
    """The loss of a token depends only on that token's inputs, so the loss can be evaluated in chunks."""
    level: Level = "token"
    """Whether probability ratios are per token or per trajectory."""
    one_advantage: bool = False
    """The loss is defined for one advantage per trajectory. If those of its tokens differ, each token is trained with
    their weighted mean."""
    aggregation: Aggregation = "token-mean"
    """Token weighting if ``algorithm.aggregation`` is not set."""
    trains_zero_advantages: bool = False
    """Tokens whose advantage is 0 contribute to the loss, or to statistics that it uses. Without it, sequences of such
    tokens alone are not fed to the policy."""
    weighs_rollout: bool = False
    """The loss uses ``factors_M`` itself, so ``weights_M`` does not contain them."""


class Loss(Protocol):
    """A policy loss."""

    def __call__(self, inputs: LossInputs, /) -> LossOutput:
        """Return the loss of a micro-batch."""


@runtime_checkable
class ConfigWithNotes(Protocol):
    """The options of an algorithm that comment on valid values which may be unexpected."""

    def notes(self) -> list[str]:
        """Return one sentence for each; a run prints them when it starts."""
        ...
