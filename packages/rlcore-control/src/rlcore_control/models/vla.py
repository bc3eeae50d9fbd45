"""The compact vision-language-action model: an encoder of observations and an action head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from rlcore.errors import DataError
from torch import Tensor

from rlcore_control.models.action_model import NO_NOISE, ActionModel, Decision, NoiseShapes, Observation
from rlcore_control.models.config import TinyVLAConfig
from rlcore_control.models.encoder import Encoder
from rlcore_control.models.folder import write_folder
from rlcore_control.models.heads.flow import FlowHead
from rlcore_control.models.heads.gaussian import GaussianHead
from rlcore_control.models.heads.head import Head
from rlcore_control.models.heads.tokens import TokensHead
from rlcore_control.models.instructions import hash_words
from rlcore_control.models.normalisation import Normalisation, Statistics
from rlcore_control.models.spaces import IMAGES, Spaces

KIND = "rlcore-vla"
"""``model_type`` in ``config.json``."""


class VisionLanguageAction(ActionModel):
    """Features of the observation, and a head that makes chunks of actions of them.

    Args:
        spaces: what the model observes of the environment; see `for_config`
        config: the sizes of the model
    """

    def __init__(self, spaces: Spaces, config: TinyVLAConfig) -> None:
        super().__init__()
        self._spaces, self.config = spaces, config
        self.normalisation = Normalisation(spaces)
        self.encoder = Encoder(spaces, config)
        self.head = _head(config, spaces.actions)

    @property
    def spaces(self) -> Spaces:
        """See `ActionModel.spaces`."""
        return self._spaces

    @property
    def chunk(self) -> int:
        """See `ActionModel.chunk`."""
        return self.config.chunk

    @property
    def features(self) -> int:
        """See `ActionModel.features`."""
        return self.config.width

    @property
    def instruction_length(self) -> int:
        """See `ActionModel.instruction_length`."""
        return self.config.instruction_length

    def encode_instruction(self, text: str) -> Tensor:
        """See `ActionModel.encode_instruction`."""
        return hash_words(text, self.config.instruction_length, self.config.vocabulary)

    def noise_shapes(self) -> NoiseShapes:
        """See `ActionModel.noise_shapes`."""
        return self.head.noise_shapes()

    def cloning_noise_shapes(self) -> NoiseShapes:
        """See `ActionModel.cloning_noise_shapes`."""
        return self.head.cloning_noise_shapes()

    def sample(self, observation: Observation, noise: Mapping[str, Tensor]) -> Decision:
        """See `ActionModel.sample`."""
        features_BD = self.encode(observation)
        choice, logprob_B = self.head.sample(features_BD, noise)
        action_BHA = self.normalisation.action_in_units(self.head.action(choice))
        return Decision(action_BHA=action_BHA, choice=choice, logprob_B=logprob_B)

    def mode(self, observation: Observation) -> Tensor:
        """See `ActionModel.mode`."""
        return self.normalisation.action_in_units(self.head.mode(self.encode(observation)))

    def evaluate(self, observation: Observation, choice: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """See `ActionModel.evaluate`."""
        features_BD = self.encode(observation)
        logprob_B, entropy_B = self.head.log_prob(features_BD, choice)
        return logprob_B, entropy_B, features_BD

    def cloning_loss(
        self, observation: Observation, action_BHA: Tensor, valid_BH: Tensor, noise: Mapping[str, Tensor] = NO_NOISE
    ) -> Tensor:
        """See `ActionModel.cloning_loss`."""
        normalised_BHA = self.normalisation.action(action_BHA)
        loss_BH = self.head.cloning_loss(self.encode(observation), normalised_BHA, noise)
        return (loss_BH * valid_BH).sum(1) / valid_BH.sum(1).clamp(min=1)

    def use_statistics(self, statistics: Statistics) -> None:
        """See `ActionModel.use_statistics`."""
        self.normalisation.use(statistics)

    def encode(self, observation: Observation) -> Tensor:
        """Return the features [B, D] of observations.

        Raises:
            DataError: an input is missing or has another size.
        """
        self._check(observation)
        features_BD: Tensor = self.encoder(observation, self.normalisation)
        return features_BD

    def save(self, folder: Path) -> None:
        """See `ActionModel.save`."""
        described = {"model_type": KIND, "spaces": asdict(self._spaces), "options": self.config.model_dump(mode="json")}
        write_folder(folder, described, self.state_dict())

    def _check(self, observation: Observation) -> None:
        wanted: dict[str, tuple[int | None, ...]] = {IMAGES + name: (None, None, 3) for name in self.encoder.cameras}
        if self._spaces.state:
            wanted["state"] = (self._spaces.state,)
        if self.instruction_length:
            wanted["instruction"] = (self.instruction_length,)
        for name, shape in wanted.items():
            found = observation.get(name)
            if found is None:
                raise DataError(
                    f"the policy needs the observation {name}",
                    found=", ".join(sorted(observation)) or "nothing",
                    fix="choose an environment and a render backend with the inputs of the policy",
                )
            sizes = tuple(found.shape[1:])
            if len(sizes) != len(shape) or any(one not in (None, size) for one, size in zip(shape, sizes, strict=True)):
                text = " x ".join("any" if one is None else str(one) for one in shape)
                raise DataError(
                    f"the policy needs {name} of size {text}",
                    found=" x ".join(map(str, sizes)) or "a single number",
                    fix="use the environment that the policy was made for, or build a new policy",
                )


def for_config(spaces: Spaces, config: TinyVLAConfig) -> Spaces:
    """Return what a model with these options observes of an environment.

    Raises:
        DataError: the environment does not have a camera or the state.
    """
    names = sorted(spaces.cameras) if config.cameras is None else config.cameras
    missing = [name for name in names if name not in spaces.cameras]
    state = spaces.state if config.state is None else config.state
    if missing or state not in (0, spaces.state):
        wanted = f"the camera {missing[0]}" if missing else f"a state of {state} values"
        others = ", ".join(sorted(spaces.cameras)) or "no cameras"
        raise DataError(
            f"the policy needs {wanted}",
            found=f"a state of {spaces.state} values, {others}",
            where="model.builder",
            fix="leave out model.builder.cameras and model.builder.state, or change the environment",
        )
    cameras = {name: spaces.cameras[name] for name in names}
    return Spaces(state=state, cameras=cameras, low_A=spaces.low_A, high_A=spaces.high_A)


def create(spaces: Spaces, config: TinyVLAConfig, seed: int) -> VisionLanguageAction:
    """Return a model with random weights. The same arguments give the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return VisionLanguageAction(for_config(spaces, config), config)


def _head(config: TinyVLAConfig, actions: int) -> Head:
    if config.head == "gaussian":
        return GaussianHead(config.width, config.chunk, actions, config.gaussian)
    if config.head == "tokens":
        return TokensHead(config.width, config.chunk, actions, config.tokens)
    return FlowHead(config.width, config.chunk, actions, config.flow)
