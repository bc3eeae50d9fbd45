"""The head ``flow``: flow matching, with a stochastic sampler whose noise chain has a log-probability.

Time t is from 0 (noise) to 1 (actions), in K steps of length 1/K.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlcore_control.models.action_model import NoiseShapes
from rlcore_control.models.config import FlowConfig
from rlcore_control.models.heads.flow_equations import sde_step, straight_path
from rlcore_control.models.heads.gaussian import normal_entropy, normal_log_prob
from rlcore_control.models.heads.head import Head

FREQUENCIES = 8
"""Number of sines and cosines that describe the time."""
LOG_STD = (-5.0, 0.0)
"""Limits of the logarithm of the learned standard deviation of a step."""


class FlowHead(Head):
    """A velocity field (Lipman et al., arXiv:2210.02747) that carries noise to chunks of actions.

    Sampling adds noise to each step. With ``sde``, a step is that of `sde_step`. With ``learned``, it is
    ``x + v h + std noise``, and a network gives the standard deviation (ReinFlow, arXiv:2505.22094). The choice is the
    chain from the first noise to the actions, and its log-probability is that of the first noise and of all steps. The
    entropy is that of the steps, given the chain.
    """

    def __init__(self, features: int, chunk: int, actions: int, config: FlowConfig) -> None:
        super().__init__()
        self.shape = (chunk, actions)
        self.steps, self.noise_level = config.steps, config.noise_level
        self.learned = config.noise == "learned"
        size = chunk * actions
        width = max(features, 2 * size)
        self.velocity = _mlp(features + size + 2 * FREQUENCIES, width, size)
        if self.learned:
            self.log_std = _mlp(features + 2 * FREQUENCIES, features, size)
            last = self.log_std[-1]
            assert isinstance(last, nn.Linear)
            nn.init.zeros_(last.weight)
            nn.init.constant_(last.bias, math.log(config.noise_level))

    def noise_shapes(self) -> NoiseShapes:
        """See `Head.noise_shapes`."""
        return {"chain": ((self.steps + 1, *self.shape), "normal")}

    def cloning_noise_shapes(self) -> NoiseShapes:
        """See `Head.cloning_noise_shapes`."""
        return {"start": (self.shape, "normal"), "time": ((1,), "uniform")}

    def sample(self, features_BD: Tensor, noise: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        """See `Head.sample`."""
        noise_BKN = noise["chain"].flatten(2)
        chain = [noise_BKN[:, 0]]
        for step in range(self.steps):
            time_B = features_BD.new_full((len(features_BD),), step / self.steps)
            mean_BN, log_std_BN = self._step(features_BD, chain[-1], time_B)
            chain.append(mean_BN + log_std_BN.exp() * noise_BKN[:, step + 1])
        choice = {"chain": torch.stack(chain, 1).reshape(len(features_BD), self.steps + 1, *self.shape)}
        # Not from the loop above: a rounded mean changes the density of a step with little noise.
        return choice, self.log_prob(features_BD, choice)[0]

    def action(self, choice: Mapping[str, Tensor]) -> Tensor:
        """See `Head.action`."""
        return choice["chain"][:, -1]

    def mode(self, features_BD: Tensor) -> Tensor:
        """See `Head.mode`."""
        x_BN = features_BD.new_zeros(len(features_BD), math.prod(self.shape))
        for step in range(self.steps):
            time_B = features_BD.new_full((len(features_BD),), step / self.steps)
            x_BN = x_BN + self.velocity_at(features_BD, x_BN, time_B) / self.steps
        return x_BN.reshape(len(x_BN), *self.shape)

    def log_prob(self, features_BD: Tensor, choice: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """See `Head.log_prob`."""
        chain_BKN = choice["chain"].flatten(2)
        batch = len(chain_BKN)
        # All steps at once: step k of sequence b is row b * K + k.
        features_MD = features_BD.repeat_interleave(self.steps, 0)
        time_M = torch.arange(self.steps, device=chain_BKN.device, dtype=features_BD.dtype).repeat(batch) / self.steps
        mean_MN, log_std_MN = self._step(features_MD, chain_BKN[:, :-1].flatten(0, 1), time_M)
        steps_MN = normal_log_prob(chain_BKN[:, 1:].flatten(0, 1), mean_MN, log_std_MN)
        first_BN = normal_log_prob(chain_BKN[:, 0], chain_BKN.new_zeros(()), chain_BKN.new_zeros(()))
        entropy_B = normal_entropy(log_std_MN).reshape(batch, -1).sum(1)
        return first_BN.sum(1) + steps_MN.reshape(batch, -1).sum(1), entropy_B

    def cloning_loss(self, features_BD: Tensor, action_BHA: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
        """Return the flow-matching loss (Lipman et al., equation 23, with straight paths) at a random time, [B, H]."""
        target_BN, noise_BN, time_B1 = action_BHA.flatten(1), noise["start"].flatten(1), noise["time"]
        x_BN, velocity_BN = straight_path(noise_BN, target_BN, time_B1)
        error_BN = self.velocity_at(features_BD, x_BN, time_B1[:, 0]) - velocity_BN
        return error_BN.square().reshape(len(error_BN), *self.shape).mean(2)

    def velocity_at(self, features_BD: Tensor, x_BN: Tensor, time_B: Tensor) -> Tensor:
        """Return the velocity [B, N] at a point [B, N] and time [B] of the flow, N = H * A."""
        velocity_BN: Tensor = self.velocity(torch.cat([features_BD, x_BN, _describe(time_B)], 1))
        return velocity_BN

    def _step(self, features_MD: Tensor, x_MN: Tensor, time_M: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and logarithm of the standard deviation of the next point, each [M, N]."""
        velocity_MN = self.velocity_at(features_MD, x_MN, time_M)
        if self.learned:
            log_std_MN = self.log_std(torch.cat([features_MD, _describe(time_M)], 1)).clamp(*LOG_STD)
            return x_MN + velocity_MN / self.steps, log_std_MN
        mean_MN, log_std_M1 = sde_step(
            x_MN, velocity_MN, time_M[:, None], steps=self.steps, noise_level=self.noise_level
        )
        return mean_MN, log_std_M1.expand_as(x_MN)


def _mlp(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, outputs)
    )


def _describe(time_B: Tensor) -> Tensor:
    """Return sines and cosines [B, 2 * FREQUENCIES] of a time from 0 to 1."""
    angles = time_B[:, None] * (math.pi / 2) * 2.0 ** torch.arange(FREQUENCIES, device=time_B.device)
    return torch.cat([angles.sin(), angles.cos()], 1)
