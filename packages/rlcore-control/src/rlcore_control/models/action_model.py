"""The interface of models that control an environment.

Axes: B batch, H actions in a chunk, A values of an action, S values of the state, L tokens of an instruction,
D features. A decision is one chunk of actions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from torch import Tensor, nn

from rlcore_control.models.normalisation import Statistics
from rlcore_control.models.spaces import Spaces

Observation = Mapping[str, Tensor]
"""``images/<camera>`` uint8 [B, height, width, 3], ``state`` float32 [B, S], ``instruction`` int64 [B, L]."""
NoiseShapes = Mapping[str, tuple[tuple[int, ...], Literal["normal", "uniform"]]]
"""Shape without the batch axis, and distribution (standard normal, or uniform in [0, 1)), of each noise tensor."""

NO_NOISE: Mapping[str, Tensor] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Sampled chunks of actions."""

    action_BHA: Tensor
    """Actions in the environment's units, within its limits."""
    choice: dict[str, Tensor]
    """Tensors [B, ...] from which `ActionModel.evaluate` computes the log-probability again."""
    logprob_B: Tensor
    """Log-probability, or log-density, of each choice, in float32."""


class ActionModel(nn.Module, ABC):
    """A policy over chunks of actions.

    `sample` followed by `evaluate` with the same weights gives equal log-probabilities. No method draws random
    numbers: the caller passes noise, so that decisions do not depend on how they are batched.
    """

    @property
    @abstractmethod
    def spaces(self) -> Spaces:
        """What the model observes and the limits of its actions."""

    @property
    @abstractmethod
    def chunk(self) -> int:
        """H, the number of actions in a decision."""

    @property
    @abstractmethod
    def features(self) -> int:
        """D, the number of features that `evaluate` returns, for a critic."""

    @property
    @abstractmethod
    def instruction_length(self) -> int:
        """L, the number of tokens of an instruction; 0 if the model does not read one."""

    @abstractmethod
    def encode_instruction(self, text: str) -> Tensor:
        """Return the token ids [L] of an instruction, int64, padded or cut to ``instruction_length``."""

    @abstractmethod
    def noise_shapes(self) -> NoiseShapes:
        """Return what noise `sample` needs for one decision."""

    @abstractmethod
    def sample(self, observation: Observation, noise: Mapping[str, Tensor]) -> Decision:
        """Choose actions.

        Args:
            observation: see `Observation`
            noise: a tensor [B, *shape] for each of `noise_shapes`
        """

    @abstractmethod
    def mode(self, observation: Observation) -> Tensor:
        """Return the actions [B, H, A] of the policy without noise, in the environment's units."""

    @abstractmethod
    def evaluate(self, observation: Observation, choice: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the log-probability of choices that were made earlier.

        Returns:
            ``logprob_B``, ``entropy_B`` (an estimate where there is no closed form) and ``features_BD``. Gradients
            flow to the parameters.
        """

    def cloning_noise_shapes(self) -> NoiseShapes:
        """Return what noise `cloning_loss` needs for one example; nothing, unless the model learns from noise."""
        return {}

    @abstractmethod
    def cloning_loss(
        self, observation: Observation, action_BHA: Tensor, valid_BH: Tensor, noise: Mapping[str, Tensor] = NO_NOISE
    ) -> Tensor:
        """Compute the loss ``loss_B`` of imitating actions.

        Args:
            observation: see `Observation`
            action_BHA: actions of a demonstration, in the environment's units
            valid_BH: false for actions after the end of the demonstration
            noise: a tensor [B, *shape] for each of `cloning_noise_shapes`
        """

    @abstractmethod
    def use_statistics(self, statistics: Statistics) -> None:
        """Normalise states and actions with the statistics of demonstrations, which are saved with the weights.

        Raises:
            DataError: the sizes are not those of the model.
        """

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write ``config.json`` and ``model.safetensors``, which has the statistics of normalisation, too."""
