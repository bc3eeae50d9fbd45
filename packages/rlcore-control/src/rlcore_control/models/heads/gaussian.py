"""The head ``gaussian``: independent normal distributions around a predicted chunk."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlcore_control.models.action_model import NoiseShapes
from rlcore_control.models.config import GaussianConfig
from rlcore_control.models.heads.head import Head

LOG_STD = (-5.0, 1.0)
"""Limits of the logarithm of the standard deviation."""


class GaussianHead(Head):
    """A chunk ``mean + std * noise``, with a standard deviation for each of its values that is a parameter.

    The choice is the sample before it is cut or squashed. With ``tanh``, the density is that of the squashed action
    (Haarnoja et al., Soft Actor-Critic, appendix C), and the entropy is that of the sample before.
    """

    log_std_HA: nn.Parameter

    def __init__(self, features: int, chunk: int, actions: int, config: GaussianConfig) -> None:
        super().__init__()
        self.shape = (chunk, actions)
        self.squashed = config.bounds == "tanh"
        self.mean = nn.Linear(features, chunk * actions)
        with torch.no_grad():  # the first actions are near the centre, whatever is observed
            self.mean.weight.mul_(0.1)
            self.mean.bias.zero_()
        self.log_std_HA = nn.Parameter(torch.full(self.shape, math.log(config.initial_std)))

    def noise_shapes(self) -> NoiseShapes:
        """See `Head.noise_shapes`."""
        return {"action": (self.shape, "normal")}

    def sample(self, features_BD: Tensor, noise: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        """See `Head.sample`."""
        mean_BHA, log_std_HA = self._distribution(features_BD)
        sample_BHA = mean_BHA + log_std_HA.exp() * noise["action"]
        return {"sample": sample_BHA}, self._density(sample_BHA, mean_BHA, log_std_HA)

    def action(self, choice: Mapping[str, Tensor]) -> Tensor:
        """See `Head.action`."""
        return choice["sample"].tanh() if self.squashed else choice["sample"]

    def mode(self, features_BD: Tensor) -> Tensor:
        """See `Head.mode`."""
        return self.action({"sample": self._distribution(features_BD)[0]})

    def log_prob(self, features_BD: Tensor, choice: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """See `Head.log_prob`."""
        mean_BHA, log_std_HA = self._distribution(features_BD)
        entropy = normal_entropy(log_std_HA).sum()
        return self._density(choice["sample"], mean_BHA, log_std_HA), entropy.expand(len(mean_BHA))

    def cloning_loss(self, features_BD: Tensor, action_BHA: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
        """See `Head.cloning_loss`."""
        return (self.mode(features_BD) - action_BHA).square().mean(2)

    def _density(self, sample_BHA: Tensor, mean_BHA: Tensor, log_std_HA: Tensor) -> Tensor:
        logprob_BHA = normal_log_prob(sample_BHA, mean_BHA, log_std_HA)
        if self.squashed:  # log(1 - tanh(x)^2), in a form that does not overflow
            logprob_BHA = logprob_BHA - 2 * (math.log(2) - sample_BHA - nn.functional.softplus(-2 * sample_BHA))
        return logprob_BHA.flatten(1).sum(1)

    def _distribution(self, features_BD: Tensor) -> tuple[Tensor, Tensor]:
        mean_BHA = self.mean(features_BD).reshape(-1, *self.shape)
        return mean_BHA, self.log_std_HA.clamp(*LOG_STD)


def normal_log_prob(value: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return the logarithm of normal densities, elementwise."""
    return -0.5 * ((value - mean) / log_std.exp()).square() - log_std - 0.5 * math.log(2 * math.pi)


def normal_entropy(log_std: Tensor) -> Tensor:
    """Return the entropies of normal distributions, elementwise."""
    return log_std + 0.5 * math.log(2 * math.pi * math.e)
