"""The networks of a finished phase, for a later one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from rlcore.errors import UserError

from rl_plugin_robotwin.phases import checkpoints
from rl_plugin_robotwin.phases.config import NetworkConfig
from rl_plugin_robotwin.phases.sequences import Interface


def loaded_model(folder: str, *, where: str, device: torch.device) -> tuple[dict[str, Any], NetworkConfig]:
    """Return ``model.pt`` of a checkpoint, with its configuration. Raises `UserError`."""
    model = checkpoints.read(Path(folder).expanduser(), checkpoints.MODEL, where=where, device=device)
    try:
        return model, NetworkConfig(**model["network"])
    except (ValidationError, TypeError) as error:
        fix = "give a checkpoint of a phase"
        raise UserError(
            "a checkpoint of a phase is needed", found=f"{folder}: {error}", where=where, fix=fix
        ) from error


def check_environment(model: Mapping[str, Any], interface: Interface, *, where: str) -> None:
    """Check that the networks of ``model.pt`` are those of an environment like the present one.

    Raises:
        UserError: the environment has other actions, another state or pictures of another size.
    """
    patch, (height, width) = model["network"]["patch"], model["world_model"]["code.marginal_hwK"].shape[:2]
    told = [
        f"actions of {sizes[0]} numbers, a state of {sizes[1]} and pictures of {size[1]} x {size[0]}"
        for sizes, size in (
            (model["sizes"], (height * patch, width * patch)),
            (interface.sizes, interface.picture),
        )
    ]
    if told[0] != told[1]:
        raise UserError(
            "the checkpoint is from another environment",
            found=f"{told[0]}; this environment has {told[1]}",
            where=where,
            fix="give a checkpoint of the same environment, or its keys of [environment]",
        )
