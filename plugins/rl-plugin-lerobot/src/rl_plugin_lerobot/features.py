"""The inputs, outputs and statistics of a LeRobot folder.

A folder has ``config.json`` and ``model.safetensors``. The statistics are in files of the pre- and postprocessor, or in
``model.safetensors`` (before LeRobot 0.4).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from rlcore.errors import UserError
from rlcore.json_files import read_json
from rlcore_control.models.folder import CONFIG, unreadable
from rlcore_control.models.spaces import Spaces
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

STATE, ENVIRONMENT_STATE, ACTION = "observation.state", "observation.environment_state", "action"
PREPROCESSOR = "policy_preprocessor.json"
_PROCESSORS = {PREPROCESSOR: "normalizer_processor", "policy_postprocessor.json": "unnormalizer_processor"}
"""Files of processors, and the step of each that has statistics."""
UNLIMITED = 1e6
"""Limit of an action where the folder has none. The environment cuts actions at its own limits."""
_PICTURES = ("observation.images.", "observation.image")
"""Starts of the names of pictures, as in ``observation.images.top`` and ``observation.image2``."""
_SMALLEST = 1e-8
LARGEST = 2**16
"""Largest size of a feature."""
_PAIRS = {
    "MEAN_STD": ("mean", "std"),
    "MIN_MAX": ("min", "max"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
}
"""The two statistics of each normalisation."""
_OLD = ("normalize_inputs.buffer_", "unnormalize_outputs.buffer_", "normalize_targets.buffer_")
"""Start of the names of statistics among the weights."""
_OLD_MODULES = tuple(one.removesuffix("buffer_") for one in _OLD)
"""The same for policies of several datasets, as in ``normalize_inputs.so100_buffer_observation_state.mean``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The features of a policy, in the order of its configuration."""

    shapes: Mapping[str, tuple[int, ...]]
    """Shape of each input and of ``action``. Pictures are [channels, height, width]."""

    @classmethod
    def of(cls, described: Mapping[str, Any], folder: Path) -> Features:
        """Read the features of ``config.json``.

        Raises:
            UserError: a feature is missing, or of a kind that rlcore does not have.
        """
        try:
            parts = {**described["input_features"], **described["output_features"]}
            shapes = {str(name): tuple(part["shape"]) for name, part in parts.items()}
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable(
                f"no shapes of input and output features ({type(error).__name__})", folder / CONFIG
            ) from error
        for name, shape in shapes.items():
            axes = 3 if is_picture(name) else 1
            if len(shape) != axes or not all(type(size) is int and 1 <= size <= LARGEST for size in shape):
                allowed = "[channels, height, width]" if axes == 3 else "one whole number"
                found = f"the shape {list(shape)}"[:200] + f" of {name}, instead of {allowed} from 1 to {LARGEST:,}"
                raise unreadable(found, folder / CONFIG)
        mapping = described.get("normalization_mapping")
        if mapping is not None and not isinstance(mapping, Mapping):
            found = f"normalization_mapping = {mapping!r:.80}, instead of a table such as {{'STATE': 'MEAN_STD'}}"
            raise unreadable(found, folder / CONFIG)
        unknown = [name for name in shapes if name not in (STATE, ENVIRONMENT_STATE, ACTION) and not is_picture(name)]
        if unknown or ACTION not in shapes:
            raise UserError(
                "a published policy needs pictures, a state and actions",
                found=f"the feature {unknown[0]}" if unknown else "no feature action",
                where=str(folder / CONFIG),
                fix="choose a policy with these features",
            )
        return cls(shapes=shapes)

    @property
    def pictures(self) -> dict[str, str]:
        """The feature of each camera, by the camera's name."""
        return {
            name.removeprefix(_PICTURES[0]).removeprefix("observation."): name
            for name in self.shapes
            if is_picture(name)
        }

    def spaces(self) -> Spaces:
        """Return what the policy observes. A state of the environment follows that of the robot."""
        cameras = {camera: (self.shapes[name][1], self.shapes[name][2]) for camera, name in self.pictures.items()}
        state = sum(self.shapes[name][0] for name in (STATE, ENVIRONMENT_STATE) if name in self.shapes)
        actions = self.shapes[ACTION][0]
        return Spaces(state=state, cameras=cameras, low_A=(-UNLIMITED,) * actions, high_A=(UNLIMITED,) * actions)


class Scale(nn.Module):
    """Normalises a feature: ``(value - offset) / spread``."""

    offset: Tensor
    spread: Tensor

    def __init__(self, offset: Tensor, spread: Tensor) -> None:
        super().__init__()
        self.register_buffer("offset", offset)
        self.register_buffer("spread", spread)

    def forward(self, value: Tensor) -> Tensor:
        """Return the normalised feature."""
        return (value - self.offset) / self.spread

    def in_units(self, value: Tensor) -> Tensor:
        """Return the feature before its normalisation."""
        return value * self.spread + self.offset


def check_steps(steps: int, chunk: int, path: Path) -> None:
    """Raise `UserError` if more actions are executed than a chunk has."""
    if steps > chunk:
        raise unreadable(f"n_action_steps = {steps}, of at most {chunk} actions of a chunk (chunk_size)", path)


def wrong_values(error: ValidationError) -> str:
    """Return the first values of a configuration that are wrong, and what is allowed."""
    rows: list[Any] = error.errors(include_url=False)
    return "; ".join(f"{'.'.join(map(str, row['loc']))} = {row['input']!r:.40}: {row['msg']}" for row in rows[:5])


def is_picture(name: str) -> bool:
    """Whether a feature is a picture."""
    return name.startswith(_PICTURES)


def is_statistic(name: str) -> bool:
    """Whether a weight is a statistic, as in folders before LeRobot 0.4."""
    return name.startswith(_OLD_MODULES)


def scales(
    described: Mapping[str, Any],
    features: Features,
    folder: Path,
    weights: Mapping[str, Tensor],
    *,
    known: bool = True,
) -> dict[str, Scale]:
    """Read how each feature is normalised.

    Args:
        described: ``config.json``
        features: its features
        folder: the folder
        weights: its weights
        known: whether there are statistics of states and actions; without them, these are not normalised

    Raises:
        UserError: a statistic is missing or damaged, or a normalisation is unknown.
    """
    found = _statistics(folder) or _old_statistics(weights)
    modes = {name: _mode(described, name) if known or is_picture(name) else "IDENTITY" for name in features.shapes}
    return {name: _scale(name, shape, modes[name], found, folder) for name, shape in features.shapes.items()}


def has_statistics(
    described: Mapping[str, Any], features: Features, folder: Path, weights: Mapping[str, Tensor]
) -> bool:
    """Whether there are statistics of states or actions, or none are needed.

    Policies that were trained on several datasets, such as ``smolvla_base``, have a preprocessor without them.

    Raises:
        UserError: the preprocessor is damaged.
    """
    names = [name for name in (STATE, ACTION) if name in features.shapes and _mode(described, name) in _PAIRS]
    found = _statistics(folder) or _old_statistics(weights)
    given = [one for one in found for name in names if one.startswith(f"{name}.")]
    return bool(given) or not names or not (folder / PREPROCESSOR).is_file()


def learned(described: Mapping[str, Any], name: str, offset: Tensor, spread: Tensor) -> tuple[dict[str, Tensor], Scale]:
    """Return the statistics of a state or an action that is normalised in a certain way, and the scale of these."""
    mode = _mode(described, name)
    if mode not in _PAIRS:
        return {}, Scale(torch.zeros_like(offset), torch.ones_like(spread))
    pair = (offset, spread) if mode == "MEAN_STD" else (offset - spread, offset + spread)
    found = {f"{name}.{which}": value.cpu() for which, value in zip(_PAIRS[mode], pair, strict=True)}
    return found, _of_pair(mode, *pair)


def write_statistics(folder: Path, statistics: Mapping[str, Tensor]) -> None:
    """Add statistics to the processors of a folder."""
    for file, kind in _PROCESSORS.items():
        path = folder / file
        if not path.is_file():
            continue
        tree = read_json(path)
        for number, step in enumerate(tree["steps"]):
            if step.get("registry_name") == kind:
                name = step.setdefault("state_file", f"{path.stem}_step_{number}_{kind}.safetensors")
                known = load_file(folder / name) if (folder / name).is_file() else {}
                save_file({**known, **statistics}, folder / name)
        path.write_text(json.dumps(tree, indent=2) + "\n", encoding="utf-8")


def _mode(described: Mapping[str, Any], name: str) -> str:
    kind = "VISUAL" if is_picture(name) else {ACTION: "ACTION", ENVIRONMENT_STATE: "ENV"}.get(name, "STATE")
    return str((described.get("normalization_mapping") or {}).get(kind, "IDENTITY"))


def _scale(name: str, shape: tuple[int, ...], mode: str, found: Mapping[str, Tensor], folder: Path) -> Scale:
    size = (shape[0], 1, 1) if is_picture(name) else shape
    if mode == "IDENTITY":
        return Scale(torch.zeros(size), torch.ones(size))
    if mode not in _PAIRS:
        raise unreadable(f"the normalisation {mode} of {name}", folder / CONFIG)
    first, second = (_statistic(f"{name}.{which}", size, found, folder) for which in _PAIRS[mode])
    if bool((second < (0 if mode == "MEAN_STD" else first)).any()):
        low, high = _PAIRS[mode]
        raise UserError(
            f"the statistic {name}.{high} must be at least {0 if mode == 'MEAN_STD' else low}",
            found=f"{second.flatten().tolist()[:8]}",
            where=str(folder),
            fix=f"copy {PREPROCESSOR} and the files that it names into the folder",
        )
    return _of_pair(mode, first, second)


def _of_pair(mode: str, first: Tensor, second: Tensor) -> Scale:
    if mode == "MEAN_STD":
        return Scale(first, second + _SMALLEST)
    spread = torch.where(second == first, torch.full_like(first, _SMALLEST), second - first)
    return Scale(first + spread / 2, spread / 2)


def _statistic(name: str, size: tuple[int, ...], found: Mapping[str, Tensor], folder: Path) -> Tensor:
    value = found.get(name)
    if value is None or value.shape != size or not value.is_floating_point() or not bool(value.isfinite().all()):
        what = "nothing" if value is None else f"a tensor {list(value.shape)} of {value.dtype}"
        raise UserError(
            f"a published policy needs the statistic {name} with finite values {list(size)}",
            found=what,
            where=str(folder),
            fix=f"copy {PREPROCESSOR} and the files that it names into the folder",
        )
    return value.float()


def _statistics(folder: Path) -> dict[str, Tensor]:
    """Read the statistics of the preprocessor; none if the folder does not have one."""
    path = folder / PREPROCESSOR
    if not path.is_file():
        return {}
    try:
        steps = read_json(path)["steps"]
        kind = _PROCESSORS[PREPROCESSOR]
        named = [one["state_file"] for one in steps if one.get("registry_name") == kind and "state_file" in one]
        found: dict[str, Tensor] = {}
        for name in named:
            if Path(name).name != name:
                raise ValueError(f"the file {name} is not in the folder")
            found |= load_file(folder / name)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise unreadable(f"{type(error).__name__}: {error}", path) from error
    return found


def _old_statistics(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = {}
    for name, value in weights.items():
        start = next((one for one in _OLD if name.startswith(one)), None)
        if start is not None:
            feature, _, statistic = name.removeprefix(start).rpartition(".")
            for prefix in (_PICTURES[0], STATE, ENVIRONMENT_STATE, ACTION, _PICTURES[1]):
                flat = prefix.replace(".", "_")
                if feature == flat or (prefix in _PICTURES and feature.startswith(flat)):
                    found[f"{prefix}{feature.removeprefix(flat)}.{statistic}"] = value
                    break
    return found
