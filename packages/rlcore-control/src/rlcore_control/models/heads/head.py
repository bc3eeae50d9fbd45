"""The interface of action heads.

Axes: B batch, H actions in a chunk, A values of an action, D features. Actions are normalised to the range -1 to 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from torch import Tensor, nn

from rlcore_control.models.action_model import NoiseShapes


class Head(nn.Module, ABC):
    """A distribution over chunks of actions."""

    @abstractmethod
    def noise_shapes(self) -> NoiseShapes:
        """Return the noise that `sample` needs for one decision."""

    @abstractmethod
    def sample(self, features_BD: Tensor, noise: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        """Return a choice, which is the tensors [B, ...] that describe a sample, and its log-probability [B]."""

    @abstractmethod
    def action(self, choice: Mapping[str, Tensor]) -> Tensor:
        """Return the normalised actions [B, H, A] of a choice."""

    @abstractmethod
    def mode(self, features_BD: Tensor) -> Tensor:
        """Return the normalised actions [B, H, A] without noise."""

    @abstractmethod
    def log_prob(self, features_BD: Tensor, choice: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the log-probability and the entropy of choices, each [B]."""

    def cloning_noise_shapes(self) -> NoiseShapes:
        """Return the noise that `cloning_loss` needs for one example."""
        return {}

    @abstractmethod
    def cloning_loss(self, features_BD: Tensor, action_BHA: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
        """Return the loss [B, H] of imitating normalised actions."""
