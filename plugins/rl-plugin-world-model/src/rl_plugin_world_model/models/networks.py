"""The networks of the phases.

Axes: B episodes, T steps, C cameras, A values of an action, S values of the state, M the memory, h and w patches,
K codes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from rlcore.errors import UserError
from torch import Tensor, nn
from torch.nn.functional import softplus

from rl_plugin_world_model.config import NetworkConfig
from rl_plugin_world_model.models.frames import PatchCode, scaled

GRID = 4
"""Width and height of the features from which the memory is updated."""
LOG_STD = (-3.0, 0.7)
"""Limits of the logarithm of the explorer's standard deviation, before it is squashed."""


@contextmanager
def enough_memory() -> Iterator[None]:
    """Raise `UserError` where PyTorch cannot allocate memory, which on a CPU is a plain `RuntimeError`."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        text = str(error)
        if not isinstance(error, (MemoryError, torch.OutOfMemoryError)) and "allocate memory" not in text:
            raise
        keys = "model.builder.channels, memory and codes, trainer.batch_size and trainer.bptt_length"
        found = (text or "MemoryError").splitlines()[0].rpartition("DefaultCPUAllocator: ")[2]
        raise UserError("the phase needs more memory than there is", found=found, fix=f"lower {keys}") from error


class Sizes(NamedTuple):
    """What the environment decides."""

    action: int
    state: int


class Encoder(nn.Module):
    """Pictures to features: a grid of patches, and one vector."""

    def __init__(self, config: NetworkConfig, cameras: int, state: int) -> None:
        super().__init__()
        width, layers = config.channels, int(math.log2(config.patch))
        inputs = [3 * cameras, *[width] * (layers - 1)]
        self.patches = nn.Sequential(*(one for size in inputs for one in (nn.Conv2d(size, width, 4, 2, 1), nn.SiLU())))
        self.pool = nn.AdaptiveAvgPool2d(GRID)
        self.vector = nn.Sequential(nn.Linear(width * GRID**2 + state, config.memory), nn.SiLU())

    def forward(self, pictures_NCHWc: Tensor, state_NS: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``[N, channels, h, w]`` and ``[N, memory]``."""
        grid = self.patches(scaled(pictures_NCHWc).flatten(1, 2))
        return grid, self.vector(torch.cat([self.pool(grid).flatten(1), state_NS], -1))


class Memory(NamedTuple):
    """The result of a memory network for a sequence."""

    grid: Tensor
    """Features of the patches, ``[B, T, channels, h, w]``."""
    memory_BTM: Tensor
    """The memory after each observation."""
    last_BM: Tensor
    """The memory after the last valid step, from which the next part of the sequence continues."""


class Remembering(nn.Module):
    """An encoder with a GRU over time. Its memory after step t depends on observations up to t and actions before t."""

    def __init__(self, config: NetworkConfig, cameras: int, sizes: Sizes) -> None:
        super().__init__()
        self.encoder = Encoder(config, cameras, sizes.state)
        self.cell = nn.GRUCell(config.memory + sizes.action, config.memory)
        self.size = config.memory

    def start(self, episodes: int, device: torch.device) -> Tensor:
        """Return the memory at the beginning of episodes."""
        return torch.zeros(episodes, self.size, device=device)

    def remember(
        self,
        pictures: Tensor,
        state_BTS: Tensor,
        previous_BTA: Tensor,
        memory_BM: Tensor,
        valid_BT: Tensor,
        *,
        through: bool = True,
    ) -> Memory:
        """Read a sequence.

        Args:
            pictures: uint8 ``[B, T, C, height, width, 3]``
            state_BTS: the state
            previous_BTA: the action before each observation; 0 for the first of an episode
            memory_BM: the memory before the sequence
            valid_BT: false after the end of an episode, where the memory stays as it is
            through: whether gradients flow from one step to the next
        """
        batch, length = valid_BT.shape
        grid, vector = self.encoder(pictures.flatten(0, 1), state_BTS.flatten(0, 1))
        vector_BTM = vector.view(batch, length, -1)
        found = []
        for t in range(length):
            before = memory_BM if through else memory_BM.detach()
            after = self.cell(torch.cat([vector_BTM[:, t], previous_BTA[:, t]], -1), before)
            memory_BM = torch.where(valid_BT[:, t, None], after, before)
            found.append(memory_BM)
        return Memory(grid.view(batch, length, *grid.shape[1:]), torch.stack(found, 1), memory_BM)


class WorldModel(Remembering):
    """Predicts the next frame from observations, the current action and the memory."""

    def __init__(self, config: NetworkConfig, sizes: Sizes) -> None:
        super().__init__(config, len(config.cameras), sizes)
        self.code = PatchCode(config)
        width = config.channels
        self.condition = nn.Linear(config.memory + sizes.action, width)
        self.decoder = nn.Sequential(
            nn.Conv2d(2 * width + config.codes, 2 * width, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.SiLU(),
        )
        self.change = nn.Conv2d(2 * width, config.codes, 1)
        nn.init.zeros_(self.change.weight)
        nn.init.zeros_(self.change.bias)  # type: ignore[arg-type]

    def predict(self, memory: Memory, action_BTA: Tensor, code: Tensor) -> Tensor:
        """Return the prediction of the next frame, ``[B * T, h, w, K]``, before training that of `PatchCode.copied`.

        Args:
            memory: of the observations
            action_BTA: the action after each observation
            code: `PatchCode.encode` of the target camera's current pictures, ``[B * T, h, w, …]``
        """
        grid = memory.grid.flatten(0, 1)
        last = self.code.inputs(code)
        condition = self.condition(torch.cat([memory.memory_BTM, action_BTA], -1)).flatten(0, 1)
        wide = condition[:, :, None, None].expand(-1, -1, *grid.shape[2:])
        change: Tensor = self.change(self.decoder(torch.cat([grid, wide, last], 1)))
        return change.movedim(1, -1) + self.code.copied(code)


class Explorer(Remembering):
    """A squashed Gaussian policy with a memory, and a critic."""

    def __init__(self, config: NetworkConfig, sizes: Sizes) -> None:
        super().__init__(config, len(config.explorer_cameras), sizes)
        self.action = nn.Sequential(
            nn.Linear(config.memory, config.memory), nn.Tanh(), nn.Linear(config.memory, sizes.action)
        )
        self.value = nn.Sequential(nn.Linear(config.memory, config.memory), nn.Tanh(), nn.Linear(config.memory, 1))
        self.log_std_A = nn.Parameter(torch.full((sizes.action,), -0.5))
        nn.init.normal_(self.action[-1].weight, std=0.01)  # type: ignore[arg-type]

    def policy(self, memory_M: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of the sample before it is squashed."""
        return self.action(memory_M), self.log_std_A.clamp(*LOG_STD).exp().expand_as(self.action(memory_M))


def log_probability(sample_A: Tensor, mean_A: Tensor, std_A: Tensor) -> Tensor:
    """Return the log-density of ``tanh(sample)``, summed over the last axis (SAC, arXiv 1801.01290, appendix C)."""
    normal = -((sample_A - mean_A) ** 2) / (2 * std_A**2) - std_A.log() - 0.5 * math.log(2 * math.pi)
    squash = 2 * (math.log(2) - sample_A - softplus(-2 * sample_A))
    return (normal - squash).sum(-1)


def entropy_estimate(sample_A: Tensor, mean_A: Tensor, std_A: Tensor) -> Tensor:
    """Return an estimate of the entropy of the squashed Gaussian per dimension.

    That of the Gaussian is exact. The part of the squashing is measured at the sample's noise, with gradients.
    """
    noise = ((sample_A - mean_A) / std_A).detach()
    again = mean_A + std_A * noise
    squash = 2 * (math.log(2) - again - softplus(-2 * again))
    return (std_A.log() + 0.5 * math.log(2 * math.pi * math.e) + squash).mean(-1)
