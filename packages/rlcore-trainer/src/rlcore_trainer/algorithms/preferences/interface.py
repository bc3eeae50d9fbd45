"""Inputs and traits of losses of preferences. Does not import torch.

Axes: ``P`` the pairs of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from rlcore_trainer.algorithms.configured import component

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceInputs:
    """The inputs of a loss of preferences. Log-probabilities are float64 and in nats."""

    chosen_P: Tensor
    """The log-probability of each chosen answer: the sum over its tokens, differentiable."""
    rejected_P: Tensor
    reference_chosen_P: Tensor
    """The same under the reference, which is the policy before training; 0 unless ``needs_reference``."""
    reference_rejected_P: Tensor
    chosen_lengths_P: Tensor
    """Number of tokens of each chosen answer."""
    rejected_lengths_P: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceTraits:
    """Properties of a loss of preferences, declared as ``traits``. The defaults apply if ``traits`` is absent."""

    needs_reference: bool = True
    """The loss reads the log-probabilities of the reference, which are computed once before the first step."""
    normalised: bool = False
    """The loss compares means over tokens instead of sums. The implicit rewards among the metrics do, too."""
    sft: float = 0.0
    """Weight of the negative log-likelihood of the chosen answers if ``preference.sft`` is not set."""


class PreferenceLoss(Protocol):
    """A loss of preferences."""

    def __call__(self, inputs: PreferenceInputs, /) -> Tensor:
        """Return the loss of each pair, ``loss_P``. An update minimises its mean."""


Function = TypeVar("Function", bound="Callable[..., Tensor]")


def preference_loss(**traits: Any) -> Callable[[Function], Function]:
    """Make a function that returns the loss of each pair a loss of preferences.

    Its parameters before ``*`` are fields of `PreferenceInputs`, and those after ``*`` are the keys of its table.

    Args:
        traits: see `PreferenceTraits`
    """
    declared = PreferenceTraits(**traits)
    return lambda function: component(function, None, declared, lambda loss_P: loss_P)


def traits_of(loss: object) -> PreferenceTraits:
    """Return the traits of a loss of preferences or its class."""
    return cast(PreferenceTraits, getattr(loss, "traits", PreferenceTraits()))
