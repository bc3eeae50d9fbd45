"""Load the folder of a control policy, whatever its family."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rlcore.errors import UserError
from rlcore.json_files import refuse_special_files
from rlcore.plugins.loading import pip_line
from rlcore.plugins.registry import Registry
from rlcore.specs import ActionModelSpec

from rlcore_control.models.action_model import ActionModel
from rlcore_control.models.config import TinyVLAConfig
from rlcore_control.models.folder import CONFIG, WEIGHTS, check_version, read_config, read_weights, unreadable
from rlcore_control.models.spaces import Spaces
from rlcore_control.models.vla import KIND, VisionLanguageAction


def load_action_model(folder: Path) -> ActionModel:
    """Load a policy from a local folder, on the CPU.

    Raises:
        UserError: the folder is not that of a policy, or a file is missing or damaged, or the weights are not those of
            the configuration.
    """
    if folder.is_dir():
        refuse_special_files(folder)
    described = read_config(folder)
    if described.get("model_type") == KIND:
        return _vla(described, folder)
    registry = Registry()
    for spec in registry.specs("action_model"):
        if isinstance(spec, ActionModelSpec) and any(described.get(key) == value for key, value in spec.marks):
            model: ActionModel = registry.load("action_model", spec.id)(described, folder)
            return model
    found = ", ".join(f"{key} {described[key]}" for key in ("type", "model_type") if key in described)
    raise UserError(
        f"a control policy must be one that rlcore saved (model_type {KIND}), or of a family of a plugin, such as ACT, "
        "pi0 and SmolVLA of rl-plugin-lerobot",
        found=found or "neither type nor model_type",
        where=str(folder / CONFIG),
        fix=f"{pip_line(['rl-plugin-lerobot'])}, or model.path=builtin:tiny-vla for a new policy",
    )


def _vla(described: Mapping[str, Any], folder: Path) -> VisionLanguageAction:
    check_version(described, folder)
    try:
        spaces = _spaces(described["spaces"])
        config = TinyVLAConfig.model_validate(described["options"])
    except (KeyError, TypeError, ValueError) as error:
        raise unreadable(f"{type(error).__name__}: {error}", folder / CONFIG) from error
    with torch.device("meta"):  # no memory is used before the weights are known to fit
        skeleton = VisionLanguageAction(spaces, config)
    weights = read_weights(folder / WEIGHTS, skeleton.state_dict())
    model = VisionLanguageAction(spaces, config)
    model.load_state_dict(weights)
    return model


def _spaces(tree: Mapping[str, Any]) -> Spaces:
    cameras = {str(name): (int(size[0]), int(size[1])) for name, size in tree["cameras"].items()}
    low_A, high_A = (tuple(float(one) for one in tree[name]) for name in ("low_A", "high_A"))
    return Spaces(state=int(tree["state"]), cameras=cameras, low_A=low_A, high_A=high_A)
