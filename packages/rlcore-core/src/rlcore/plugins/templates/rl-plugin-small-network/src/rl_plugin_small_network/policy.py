"""The policy, its builder and its reader.

Axes: B batch, H actions of a decision, A values of an action, S values of the state, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rlcore import DataError, UserError
from rlcore_control.config import inputs_of
from rlcore_control.models.action_model import NO_NOISE, ActionModel, Decision, NoiseShapes, Observation
from rlcore_control.models.config import GaussianConfig
from rlcore_control.models.folder import WEIGHTS, read_weights, unreadable, write_folder
from rlcore_control.models.heads.gaussian import GaussianHead
from rlcore_control.models.normalisation import Normalisation, Statistics
from rlcore_control.models.observations import View
from rlcore_control.models.spaces import Spaces
from torch import Tensor, nn

from rl_plugin_small_network.config import SmallNetworkConfig


class SmallNetwork(ActionModel):
    """Two layers over the state, and a normal distribution around one predicted action."""

    def __init__(self, spaces: Spaces, width: int) -> None:
        super().__init__()
        self._spaces, self.width = Spaces(state=spaces.state, low_A=spaces.low_A, high_A=spaces.high_A), width
        self.normalisation = Normalisation(self._spaces)
        self.layers = nn.Sequential(nn.Linear(spaces.state, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.head = GaussianHead(width, self.chunk, spaces.actions, GaussianConfig())

    @property
    def spaces(self) -> Spaces:
        """What the policy sees, without pictures, and the limits of its actions."""
        return self._spaces

    @property
    def chunk(self) -> int:
        """H: each decision is one action."""
        return 1

    @property
    def features(self) -> int:
        """D, for a critic that shares the layers."""
        return self.width

    @property
    def instruction_length(self) -> int:
        """0: it reads no instruction."""
        return 0

    def encode_instruction(self, text: str) -> Tensor:
        """No tokens."""
        return torch.zeros(0, dtype=torch.int64)

    def noise_shapes(self) -> NoiseShapes:
        """The caller draws the noise, so that a decision does not depend on the others of its batch."""
        return self.head.noise_shapes()

    def sample(self, observation: Observation, noise: Mapping[str, Tensor]) -> Decision:
        """Choose actions, with the choice from which `evaluate` computes their log-probabilities again."""
        choice, logprob_B = self.head.sample(self._features(observation), noise)
        action_BHA = self.normalisation.action_in_units(self.head.action(choice))
        return Decision(action_BHA=action_BHA, choice=choice, logprob_B=logprob_B)

    def mode(self, observation: Observation) -> Tensor:
        """The actions [B, H, A] without noise, for evaluations."""
        return self.normalisation.action_in_units(self.head.mode(self._features(observation)))

    def evaluate(self, observation: Observation, choice: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """``logprob_B``, ``entropy_B`` and ``features_BD``, with gradients."""
        features_BD = self._features(observation)
        return *self.head.log_prob(features_BD, choice), features_BD

    def cloning_loss(
        self, observation: Observation, action_BHA: Tensor, valid_BH: Tensor, noise: Mapping[str, Tensor] = NO_NOISE
    ) -> Tensor:
        """``loss_B`` of imitating actions in a warm-up."""
        loss_BH = self.head.cloning_loss(self._features(observation), self.normalisation.action(action_BHA), noise)
        return (loss_BH * valid_BH).sum(1) / valid_BH.sum(1).clamp(min=1)

    def use_statistics(self, statistics: Statistics) -> None:
        """Normalise states and actions with those of demonstrations. They are saved with the weights."""
        self.normalisation.use(statistics)

    def save(self, folder: Path) -> None:
        """Write ``config.json`` and ``model.safetensors``."""
        described = {"model_type": "small-network", "spaces": asdict(self._spaces), "width": self.width}
        write_folder(folder, described, self.state_dict())

    def _features(self, observation: Observation) -> Tensor:
        if "state" not in observation or observation["state"].shape[1] != self._spaces.state:
            raise DataError(f"the policy needs a state of {self._spaces.state} numbers")
        features_BD: Tensor = self.layers(self.normalisation.state(observation["state"]))
        return features_BD


def build(
    folder: Path,
    texts: Iterable[str],
    seed: int,
    config: SmallNetworkConfig,
    *,
    environment: Callable[[], Any] | None = None,
    sampler: object = None,
) -> None:
    """Write a policy with random weights for an environment, which is made and closed.

    rlcore passes ``environment`` and ``sampler``, the options of the run's sampler, because they are parameters here.
    """
    made: Any = environment() if environment is not None else None
    if not hasattr(made, "action_space"):
        raise UserError("builtin:small-network needs an environment with continuous actions", where="model.path")
    try:
        spaces = View.of(made.observation_space, made.action_space, inputs_of(sampler)).spaces
    finally:
        made.close()
    with torch.random.fork_rng(devices=[]):  # the same seed gives the same weights, and changes no others
        torch.manual_seed(seed)
        SmallNetwork(spaces, config.width).save(folder)


def read(described: Mapping[str, Any], folder: Path) -> SmallNetwork:
    """Read a policy. A folder may come from anywhere, so nothing in it is trusted.

    Args:
        described: its config.json
        folder: has the weights
    """
    try:
        sizes = described["spaces"]
        low_A, high_A = (tuple(map(float, sizes[name])) for name in ("low_A", "high_A"))
        spaces = Spaces(state=int(sizes["state"]), low_A=low_A, high_A=high_A)
        width = SmallNetworkConfig(width=described["width"]).width
        with torch.device("meta"):  # no memory is used before the weights are known to fit
            expected = SmallNetwork(spaces, width).state_dict()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise unreadable(f"{type(error).__name__}: {error}", folder / "config.json") from error
    weights = read_weights(folder / WEIGHTS, expected)
    model = SmallNetwork(spaces, width)
    model.load_state_dict(weights)
    return model
