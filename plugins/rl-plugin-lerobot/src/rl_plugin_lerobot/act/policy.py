"""Policies of LeRobot as action models: folders of ACT."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from rlcore.errors import DataError, UserError
from rlcore_control.models.action_model import NO_NOISE, ActionModel, Decision, NoiseShapes, Observation
from rlcore_control.models.folder import (
    CONFIG,
    WEIGHTS,
    check_weights,
    read_tensors,
    read_weights,
    unreadable,
)
from rlcore_control.models.heads.gaussian import LOG_STD, normal_entropy, normal_log_prob
from rlcore_control.models.normalisation import Statistics
from rlcore_control.models.spaces import IMAGES, Spaces
from safetensors.torch import save_file
from torch import Tensor, nn

from rl_plugin_lerobot.act.network import Act, ActConfig
from rl_plugin_lerobot.act.resnet import BLOCKS
from rl_plugin_lerobot.features import (
    ACTION,
    ENVIRONMENT_STATE,
    STATE,
    Features,
    check_steps,
    is_statistic,
    scales,
    wrong_values,
)

EXPLORATION = "rlcore_exploration.safetensors"
"""File that rlcore adds to a folder: the trained standard deviation of actions."""
INITIAL_STD = 0.1
"""Initial standard deviation of normalised actions."""
_PREFIX = "model."
_TRAINING_ONLY = "model.vae_encoder"
"""Start of the names of weights that only LeRobot's own training uses. They are kept as they are."""


class ActPolicy(ActionModel):
    """ACT with a normal distribution around its chunk.

    ACT itself is deterministic. To explore and to have a density, noise with a trained standard deviation is added to
    the normalised chunk. The policy keeps the statistics of its folder. Actions have no limits: the environment cuts
    them at its own. Dropout and the variational objective are not used in training.
    """

    def __init__(self, described: Mapping[str, Any], weights: Mapping[str, Tensor], folder: Path) -> None:
        super().__init__()
        self._described, self._features = dict(described), Features.of(described, folder)
        self._config = _config(described, folder)
        shapes = self._features.shapes
        self._sizes = [shapes[name][0] if name in shapes else 0 for name in (STATE, ENVIRONMENT_STATE)]
        self._cameras = self._features.pictures
        self._spaces = self._features.spaces()
        with torch.device("meta"):  # no memory is used before the weights are known to fit
            skeleton = self._network()
        self._kept = {
            name: one for name, one in weights.items() if name.startswith(_TRAINING_ONLY) or is_statistic(name)
        }
        own = {name.removeprefix(_PREFIX): one for name, one in weights.items() if name not in self._kept}
        check_weights(own, skeleton.state_dict(), folder / WEIGHTS)
        self.act = self._network()
        self.act.load_state_dict(own)
        self._scales = scales(described, self._features, folder, weights)
        self.scales = nn.ModuleList(self._scales.values())
        self._files = {
            path.name: path.read_bytes() for path in sorted(folder.glob("policy_*processor*")) if path.is_file()
        }
        size = (self.chunk, self._spaces.actions)
        self.log_std_HA = nn.Parameter(_stored(folder, size))

    def _network(self) -> Act:
        return Act(self._config, *self._sizes, pictures=bool(self._cameras), actions=self._spaces.actions)

    @property
    def spaces(self) -> Spaces:
        """See `ActionModel.spaces`."""
        return self._spaces

    @property
    def chunk(self) -> int:
        """The number of actions of a chunk that the policy executes; it predicts more."""
        return self._config.n_action_steps

    @property
    def features(self) -> int:
        """See `ActionModel.features`."""
        return self._config.dim_model

    @property
    def instruction_length(self) -> int:
        """ACT does not read instructions."""
        return 0

    def encode_instruction(self, text: str) -> Tensor:
        """See `ActionModel.encode_instruction`."""
        return torch.zeros(0, dtype=torch.int64)

    def noise_shapes(self) -> NoiseShapes:
        """See `ActionModel.noise_shapes`."""
        return {"action": ((self.chunk, self._spaces.actions), "normal")}

    def sample(self, observation: Observation, noise: Mapping[str, Tensor]) -> Decision:
        """See `ActionModel.sample`."""
        mean_BHA, _ = self._predict(observation)
        log_std_HA = self.log_std_HA.clamp(*LOG_STD)
        sample_BHA = mean_BHA + log_std_HA.exp() * noise["action"]
        logprob_B = normal_log_prob(sample_BHA, mean_BHA, log_std_HA).flatten(1).sum(1)
        action_BHA = self._scales[ACTION].in_units(sample_BHA)
        return Decision(action_BHA=action_BHA, choice={"sample": sample_BHA}, logprob_B=logprob_B)

    def mode(self, observation: Observation) -> Tensor:
        """See `ActionModel.mode`. This is what LeRobot executes."""
        return self._scales[ACTION].in_units(self._predict(observation)[0])

    def evaluate(self, observation: Observation, choice: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """See `ActionModel.evaluate`."""
        mean_BHA, features_BD = self._predict(observation)
        log_std_HA = self.log_std_HA.clamp(*LOG_STD)
        logprob_B = normal_log_prob(choice["sample"], mean_BHA, log_std_HA).flatten(1).sum(1)
        return logprob_B, normal_entropy(log_std_HA).sum().expand(len(mean_BHA)), features_BD

    def cloning_loss(
        self, observation: Observation, action_BHA: Tensor, valid_BH: Tensor, noise: Mapping[str, Tensor] = NO_NOISE
    ) -> Tensor:
        """Return the mean absolute error of normalised actions (Zhao et al., section 4)."""
        mean_BHA, _ = self._predict(observation)
        error_BH: Tensor = (mean_BHA - self._scales[ACTION](action_BHA)).abs().mean(2)
        return (error_BH * valid_BH).sum(1) / valid_BH.sum(1).clamp(min=1)

    def use_statistics(self, statistics: Statistics) -> None:
        """Do nothing: the weights of a published policy belong to the statistics of its folder."""

    def save(self, folder: Path) -> None:
        """Write a folder that LeRobot reads, too, with a file of rlcore for the standard deviation of actions."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).write_text(json.dumps(self._described, indent=2) + "\n", encoding="utf-8")
        for name, data in self._files.items():
            (folder / name).write_bytes(data)
        own = {_PREFIX + name: one.detach().cpu().contiguous() for name, one in self.act.state_dict().items()}
        save_file(own | self._kept, folder / WEIGHTS, metadata={"format": "pt"})
        save_file({"log_std": self.log_std_HA.detach().cpu().contiguous()}, folder / EXPLORATION)

    def _predict(self, observation: Observation) -> tuple[Tensor, Tensor]:
        missing = [name for name in self._cameras if IMAGES + name not in observation]
        if missing or (sum(self._sizes) and "state" not in observation):
            raise DataError(
                f"the policy needs the observation {IMAGES + missing[0] if missing else 'state'}",
                found=", ".join(sorted(observation)) or "nothing",
                fix="choose an environment with the inputs of the policy",
            )
        parts: list[Tensor | None] = [None, None]
        if sum(self._sizes):
            given = torch.split(observation["state"], self._sizes, 1)
            for place, name in enumerate((STATE, ENVIRONMENT_STATE)):
                parts[place] = self._scales[name](given[place]) if self._sizes[place] else None
        images = []
        for camera, name in self._cameras.items():
            image_BCYX = observation[IMAGES + camera].permute(0, 3, 1, 2).float() / 255
            if image_BCYX.shape[2:] != self._features.shapes[name][1:]:
                size = self._features.shapes[name][1:]
                image_BCYX = nn.functional.interpolate(image_BCYX, size, mode="bilinear", antialias=True)
            images.append(self._scales[name](image_BCYX))
        action_BHA, features_BD = self.act(*parts, images)
        return action_BHA[:, : self.chunk], features_BD


def read_act(described: Mapping[str, Any], folder: Path) -> ActPolicy:
    """Load a folder of LeRobot's ACT, on the CPU and in float32.

    Raises:
        UserError: a file is missing or damaged, the weights are not those of the configuration, or it needs something
            that rlcore does not compute.
    """
    return ActPolicy(described, read_tensors(folder / WEIGHTS), folder)


def _config(described: Mapping[str, Any], folder: Path) -> ActConfig:
    try:
        config = ActConfig.model_validate(described)
    except ValidationError as error:
        raise unreadable(wrong_values(error), folder / CONFIG) from error
    check_steps(config.n_action_steps, config.chunk_size, folder / CONFIG)
    problems = {
        "vision_backbone": config.vision_backbone not in BLOCKS,
        "replace_final_stride_with_dilation": config.replace_final_stride_with_dilation,
        "feedforward_activation": config.feedforward_activation not in ("relu", "gelu"),
        "n_obs_steps": config.n_obs_steps != 1,
        "temporal_ensemble_coeff": config.temporal_ensemble_coeff is not None,
        "n_heads": config.dim_model % config.n_heads != 0,
    }
    wrong = next((key for key, value in problems.items() if value), None)
    if wrong is not None:
        raise UserError(
            f"rlcore cannot compute this ACT policy because of {wrong}",
            found=f"{wrong} = {getattr(config, wrong)}",
            where=str(folder / CONFIG),
            fix="choose a policy with a ResNet-18 or ResNet-34, one observation and no temporal ensemble",
        )
    return config


def _stored(folder: Path, size: tuple[int, int]) -> Tensor:
    path = folder / EXPLORATION
    if not path.is_file():
        return torch.full(size, INITIAL_STD).log()
    return read_weights(path, {"log_std": torch.zeros(size)})["log_std"]
