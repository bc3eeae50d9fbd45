"""Policies that make a chunk of actions from noise, by following a learned velocity, as action models.

Axes: B batch, C actions of a predicted chunk, H actions that are executed, A values of an action, M padded values of
an action, S values of the state, K steps of integration, D features.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from rlcore.errors import DataError
from rlcore_control.models.action_model import NO_NOISE, ActionModel, Decision, NoiseShapes, Observation
from rlcore_control.models.folder import CONFIG, WEIGHTS
from rlcore_control.models.heads.flow_equations import sde_step, straight_path
from rlcore_control.models.heads.gaussian import normal_entropy, normal_log_prob
from rlcore_control.models.normalisation import Statistics
from rlcore_control.models.spaces import IMAGES, Spaces
from torch import Tensor, nn

from rl_plugin_lerobot.features import (
    ACTION,
    PREPROCESSOR,
    STATE,
    Scale,
    learned,
    write_statistics,
)
from rl_plugin_lerobot.flow.folder import SETTINGS, FlowFolder, ScaleSettings
from rl_plugin_lerobot.flow.names import Names
from rl_plugin_lerobot.flow.network import FlowNetwork
from rl_plugin_lerobot.flow.prompt import Prompt

FEATURES = {"state": STATE, "action": ACTION}
"""LeRobot's names of what is normalised."""
_COPIED = (
    *("tokenizer", "special_tokens_map", "added_tokens", "policy_", "vlm_config"),
    *("processor_config", "preprocessor_config"),
)
"""Start of the names of files that are saved again as they are."""


class FlowPolicy(ActionModel):
    """A published flow with noise in each of its steps (see `sde_step`).

    Only the executed actions have noise. The other values that the network predicts, which are padding or actions
    after the executed ones, follow the flow without noise. They are computed again from the first noise, so they do not
    add to the variance of the log-probability. A choice is the first noise and the executed actions after each step;
    its log-probability is that of the steps, given the first noise, which does not depend on the weights.

    Actions have no limits: the environment cuts them at its own.
    """

    has_statistics: Tensor
    """Whether states and actions are normalised with statistics that belong to the weights."""

    def __init__(
        self,
        described: Mapping[str, Any],
        known: FlowFolder,
        network: FlowNetwork,
        names: Names,
        prompt: Prompt,
        files: Mapping[str, bytes],
    ) -> None:
        super().__init__()
        self._described, self._known, self._names, self._prompt = dict(described), known, names, prompt
        self._files = dict(files)
        self.network = network
        self._scales = dict(known.scales)
        self.scales = nn.ModuleList(self._scales.values())
        self.register_buffer("has_statistics", torch.tensor(known.keeps_statistics))
        self._learned: dict[str, Tensor] = {}
        self._steps, self._noise_level = known.steps, known.settings.noise_level

    @property
    def spaces(self) -> Spaces:
        """See `ActionModel.spaces`."""
        return self._known.spaces

    @property
    def chunk(self) -> int:
        """The number of actions of a chunk that the policy executes; it may predict more."""
        return self._known.chunk

    @property
    def features(self) -> int:
        """See `ActionModel.features`. They describe the state, pictures and instruction; see `FlowNetwork.velocity`."""
        return self.network.width

    @property
    def instruction_length(self) -> int:
        """See `ActionModel.instruction_length`."""
        return self._prompt.length

    def encode_instruction(self, text: str) -> Tensor:
        """See `ActionModel.encode_instruction`."""
        return self._prompt.encode(text)

    def noise_shapes(self) -> NoiseShapes:
        """See `ActionModel.noise_shapes`."""
        steps = (self._steps, self.chunk, self.spaces.actions)
        return {"start": (self._predicted, "normal"), "steps": (steps, "normal")}

    def cloning_noise_shapes(self) -> NoiseShapes:
        """See `ActionModel.cloning_noise_shapes`."""
        return {"start": (self._predicted, "normal"), "time": ((1,), "uniform")}

    def sample(self, observation: Observation, noise: Mapping[str, Tensor]) -> Decision:
        """See `ActionModel.sample`."""
        chain: list[Tensor] = []

        def choose(step: int, mean_BHA: Tensor, log_std: Tensor) -> Tensor:
            chain.append(mean_BHA + log_std.exp() * noise["steps"][:, step])
            return chain[-1]

        logprob_B, _, _ = self._walk(observation, noise["start"], choose)
        choice = {"start": noise["start"], "chain": torch.stack(chain, 1)}
        return Decision(action_BHA=self._scales["action"].in_units(chain[-1]), choice=choice, logprob_B=logprob_B)

    def mode(self, observation: Observation) -> Tensor:
        """See `ActionModel.mode`. The flow starts at zero, the mode of its first noise."""
        batch = len(next(iter(observation.values())))
        start_BCM = torch.zeros(batch, *self._predicted, device=self._device)
        return self.without_noise(observation, start_BCM)

    def without_noise(self, observation: Observation, start_BCM: Tensor) -> Tensor:
        """Return the actions [B, H, A] to which the flow carries a first noise, in the environment's units.

        This is what the library of the policy computes.
        """
        seen, x_BCM = self._look(observation), start_BCM
        for step in range(self._steps):
            x_BCM = x_BCM + self.network.velocity(seen, x_BCM, self._time(step, len(x_BCM)))[0] / self._steps
        return self._scales["action"].in_units(self._executed(x_BCM))

    def evaluate(self, observation: Observation, choice: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """See `ActionModel.evaluate`."""
        return self._walk(observation, choice["start"], lambda step, mean_BHA, log_std: choice["chain"][:, step])

    def cloning_loss(
        self, observation: Observation, action_BHA: Tensor, valid_BH: Tensor, noise: Mapping[str, Tensor] = NO_NOISE
    ) -> Tensor:
        """Return the flow-matching loss of the executed actions at a random time.

        The actions after the executed ones, which the network predicts too, are repetitions of the last one.
        """
        sizes = self._known.sizes
        chosen_BHA = self._scales["action"](action_BHA)
        after_BCA = chosen_BHA[:, -1:].expand(-1, self._predicted[0] - self.chunk, -1)
        target_BCM = _padded(torch.cat([chosen_BHA, after_BCA], 1), sizes.max_action_dim)
        # The time has a Beta(a, 1) distribution, whose inverse is a power.
        beta_B = noise["time"][:, 0] ** (1 / sizes.time_sampling_beta_alpha)
        time_B = beta_B * sizes.time_sampling_scale + sizes.time_sampling_offset
        x_BCM, velocity_BCM = straight_path(noise["start"], target_BCM, 1 - time_B[:, None, None])
        found_BCM, _ = self.network.velocity(self._look(observation), x_BCM, time_B)
        loss_BH = self._executed(found_BCM - velocity_BCM).square().mean(2)
        return (loss_BH * valid_BH).sum(1) / valid_BH.sum(1).clamp(min=1)

    def use_statistics(self, statistics: Statistics) -> None:
        """Take over statistics if the folder has none; otherwise, its weights belong to its own."""
        if self.has_statistics:
            return
        found, wanted = (len(statistics.state_mean_S), len(statistics.action_low_A)), self.spaces
        if found != (wanted.state, wanted.actions):
            raise DataError(
                f"demonstrations need {wanted.state} values of the state and {wanted.actions} of an action",
                found=f"{found[0]} and {found[1]}",
                fix="record the demonstrations in the environment of the run",
            )
        limits = torch.tensor(wanted.low_A), torch.tensor(wanted.high_A)
        own = {
            "state": (statistics.state_mean_S, statistics.state_scale()),
            "action": statistics.action_scale(*limits),
        }
        for name, scale in self._scales.items():
            if name in own:
                offset, spread = own[name]
                if self._known.needs_statistics:
                    found_here, exact = learned(self._described, FEATURES[name], offset, spread)
                    self._learned |= found_here
                    offset, spread = exact.offset, exact.spread
                _set(scale, offset, spread)
        self.has_statistics.fill_(True)

    def save(self, folder: Path) -> None:
        """Write a folder that the library of the policy reads, too, with a file of rlcore for its own settings."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).write_text(json.dumps(self._described, indent=2) + "\n", encoding="utf-8")
        for name, data in self._files.items():
            (folder / name).write_bytes(data)
        settings = self._known.settings
        if settings.state is not None and self.has_statistics:
            settings = settings.model_copy(
                update={"normalisation": {name: _listed(self._scales[name]) for name in ("state", "action")}}
            )
        (folder / SETTINGS).write_text(settings.model_dump_json(indent=2, exclude_none=True) + "\n", encoding="utf-8")
        if self._learned:
            write_statistics(folder, self._learned)
        self._names.save(self.network.weights(), folder / WEIGHTS)

    @property
    def _predicted(self) -> tuple[int, int]:
        return self.network.chunk, self.network.actions

    @property
    def _device(self) -> torch.device:
        return next(self.parameters()).device

    def _executed(self, predicted_BCM: Tensor) -> Tensor:
        return predicted_BCM[:, : self.chunk, : self.spaces.actions]

    def _time(self, step: int, batch: int) -> Tensor:
        """The time of a step as the network counts it, from 1 to 0."""
        return torch.full((batch,), 1 - step / self._steps, device=self._device)

    def _walk(
        self, observation: Observation, start_BCM: Tensor, choose: Callable[[int, Tensor, Tensor], Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Follow the flow, with executed actions that are chosen from the mean and deviation of each step.

        Returns log-probability, entropy and features as `evaluate`.
        """
        seen, x_BCM = self._look(observation), start_BCM
        logprob_B, entropy = start_BCM.new_zeros(len(start_BCM)), start_BCM.new_zeros(())
        for step in range(self._steps):
            time_B = self._time(step, len(x_BCM))
            velocity_BCM, features_BD = self.network.velocity(seen, x_BCM, time_B)
            mean_BHA, log_std = sde_step(
                self._executed(x_BCM),
                self._executed(velocity_BCM),
                1 - time_B[0],
                steps=self._steps,
                noise_level=self._noise_level,
            )
            chosen_BHA = choose(step, mean_BHA, log_std)
            logprob_B = logprob_B + normal_log_prob(chosen_BHA, mean_BHA, log_std).flatten(1).sum(1)
            entropy = entropy + normal_entropy(log_std) * chosen_BHA[0].numel()
            x_BCM = x_BCM + velocity_BCM / self._steps
            others_BHM = x_BCM[:, : self.chunk, self.spaces.actions :]
            x_BCM = torch.cat([torch.cat([chosen_BHA, others_BHM], 2), x_BCM[:, self.chunk :]], 1)
        return logprob_B, entropy.expand(len(start_BCM)), features_BD

    def _look(self, observation: Observation) -> Any:
        if self._known.needs_statistics and not self.has_statistics:
            raise DataError(
                "the policy needs statistics of states and actions",
                found="none in this file or those that it names",
                where=str(self._known.folder / PREPROCESSOR),
                fix="set warmup.steps to use those of recorded episodes, or copy the statistics of the policy",
            )
        wanted = [*(IMAGES + name for name in self.spaces.cameras), *(["state"] if self.spaces.state else [])]
        missing = [name for name in (*wanted, "instruction") if name not in observation]
        if missing or (self.spaces.state and observation["state"].shape[1] != self.spaces.state):
            raise DataError(
                f"the policy needs the observation {missing[0] if missing else f'state of size {self.spaces.state}'}",
                found=", ".join(f"{name} {list(one.shape[1:])}" for name, one in sorted(observation.items())),
                fix="choose an environment with the inputs of the policy",
            )
        prompt_BL, images = observation["instruction"], []
        for name in self.spaces.cameras:
            image_BCYX = observation[IMAGES + name].permute(0, 3, 1, 2).float() / 255
            images.append(self.network.picture(self._scales[name](image_BCYX)))
        state_BS = torch.zeros(len(prompt_BL), 0, device=self._device)
        if self.spaces.state:
            state_BS = self._scales["state"](observation["state"])
        return self.network.look(images, prompt_BL, _padded(state_BS, self._known.sizes.max_state_dim))


def copied_files(folder: Path) -> dict[str, bytes]:
    """Return the files that are saved again as they are, by name."""
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name.startswith(_COPIED)
    }


def _padded(values: Tensor, size: int) -> Tensor:
    return nn.functional.pad(values, (0, size - values.shape[-1]))


def _set(scale: Scale, offset: Tensor, spread: Tensor) -> None:
    scale.offset.copy_(offset)
    scale.spread.copy_(spread)


def _listed(scale: Scale) -> ScaleSettings:
    return ScaleSettings(offset=scale.offset.tolist(), spread=scale.spread.tolist())
