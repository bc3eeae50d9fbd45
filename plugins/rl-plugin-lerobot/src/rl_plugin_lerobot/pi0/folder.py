"""The configuration of pi0 in folders of LeRobot and of transformers.

A folder of transformers does not say which cameras the policy sees and how many values states and actions have, so it
needs a file of rlcore. In folders of LeRobot, this file is optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from rlcore.errors import UserError
from rlcore_control.models.folder import CONFIG, unreadable
from rlcore_control.models.spaces import Spaces
from torch import Tensor

from rl_plugin_lerobot.features import UNLIMITED, Scale, check_steps
from rl_plugin_lerobot.flow.folder import (
    MOST_LAYERS,
    SETTINGS,
    FlowFolder,
    FlowSizes,
    Size,
    check_padding,
    lerobot_folder,
    read_features,
    read_settings,
    read_sizes,
)

GEMMA: dict[str, dict[str, int]] = {
    name: {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": 18}
    | {"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 257_152}
    for name, width, inner in (("gemma_300m", 1024, 4096), ("gemma_2b", 2048, 16_384))
}
"""Sizes of LeRobot's variants of Gemma."""
SIGLIP = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16}
SIGLIP |= {"patch_size": 14}
"""Sizes of the image encoder in folders of LeRobot."""


class Sizes(FlowSizes):
    """The keys of ``config.json`` that both libraries have, and LeRobot's own."""

    num_inference_steps: Annotated[int, Field(ge=1, le=1000)] = 10
    paligemma_variant: str = "gemma_2b"
    action_expert_variant: str = "gemma_300m"
    image_resolution: Annotated[tuple[Size, Size], Field(strict=False)] = (224, 224)
    use_relative_actions: Literal[False] = False


def read_lerobot(described: Mapping[str, Any], weights: Mapping[str, Tensor], folder: Path) -> FlowFolder:
    """Read a folder of LeRobot.

    Raises:
        UserError: a file is damaged, or the policy needs something that rlcore does not compute.
    """
    sizes = read_sizes(Sizes, described, folder)
    problems = {
        "paligemma_variant": sizes.paligemma_variant not in GEMMA,
        "action_expert_variant": sizes.action_expert_variant not in GEMMA,
        "image_resolution": sizes.image_resolution[0] != sizes.image_resolution[1],
        "proj_width, which LeRobot had before version 0.4": "proj_width" in described,
    }
    fix = "choose a policy of LeRobot 0.4 or later with square pictures, a state and absolute actions"
    features = read_features("pi0", described, sizes, folder, problems, fix=fix)
    config = _transformers_config(
        {
            **sizes.model_dump(include=_SHARED),
            "vlm_config": {
                "model_type": "paligemma",
                "projection_dim": GEMMA[sizes.paligemma_variant]["hidden_size"],
                "image_token_id": GEMMA[sizes.paligemma_variant]["vocab_size"],
                "text_config": {"model_type": "gemma", **GEMMA[sizes.paligemma_variant]},
                "vision_config": {
                    "model_type": "siglip_vision_model",
                    "vision_use_head": False,
                    "image_size": sizes.image_resolution[0],
                    **SIGLIP,
                },
            },
            "dit_config": {"model_type": "gemma", **GEMMA[sizes.action_expert_variant]},
        },
        folder,
    )
    return lerobot_folder(
        described,
        weights,
        folder,
        features=features,
        sizes=sizes,
        steps=sizes.num_inference_steps,
        config=config,
    )


def read_transformers(described: Mapping[str, Any], folder: Path) -> FlowFolder:
    """Read a folder of transformers. Raises as `read_lerobot`."""
    sizes, settings = read_sizes(Sizes, described, folder), read_settings(folder)
    if settings.state is None or settings.cameras is None or settings.actions is None:
        raise UserError(
            "a policy of transformers needs the sizes and cameras of its environment",
            found="no such keys" if (folder / SETTINGS).is_file() else f"no {SETTINGS}",
            where=str(folder),
            fix=f'write {SETTINGS} with {{"state": 8, "cameras": ["front"], "actions": 7}}, as in the environment',
        )
    config = _transformers_config(described, folder)
    side = int(config.vlm_config.vision_config.image_size)
    spaces = Spaces(
        state=settings.state,
        cameras=dict.fromkeys(settings.cameras, (side, side)),
        low_A=(-UNLIMITED,) * settings.actions,
        high_A=(UNLIMITED,) * settings.actions,
    )
    check_padding(settings.state, settings.actions, sizes, folder / SETTINGS)
    check_steps(settings.n_action_steps or 1, sizes.chunk_size, folder / SETTINGS)
    found = {name: _identity(size) for name, size in (("state", settings.state), ("action", settings.actions))}
    for name, given in (settings.normalisation or {}).items():
        if not len(given.offset) == len(given.spread) == len(found[name].offset):
            raise unreadable(f"normalisation of another size than {name}", folder / SETTINGS)
        found[name] = Scale(torch.tensor(given.offset), torch.tensor(given.spread))
    return FlowFolder(
        folder=folder,
        config=config,
        sizes=sizes,
        steps=sizes.num_inference_steps,
        spaces=spaces,
        chunk=settings.n_action_steps or sizes.chunk_size,
        settings=settings,
        scales=found | {name: _identity(1) for name in settings.cameras},
        keeps_statistics=settings.normalisation is not None,
    )


_SHARED = {
    *("chunk_size", "max_state_dim", "max_action_dim", "num_inference_steps", "min_period", "max_period"),
}


def _identity(size: int) -> Scale:
    return Scale(torch.zeros(size), torch.ones(size))


def _transformers_config(described: Mapping[str, Any], folder: Path) -> Any:
    from transformers import PI0Config

    try:
        config: Any = PI0Config.from_dict(dict(described))
        vlm, dit = config.vlm_config, config.dit_config
        kinds = (vlm.model_type, vlm.text_config.model_type, vlm.vision_config.model_type, dit.model_type)
        layers = max(one.num_hidden_layers for one in (vlm.text_config, vlm.vision_config, dit))
        pairs = [
            (getattr(vlm.text_config, name), getattr(dit, name))
            for name in ("num_hidden_layers", "num_key_value_heads", "head_dim")
        ]
    except Exception as error:  # transformers and its validation raise several types
        raise unreadable(f"{type(error).__name__}: {error}".replace("\n", " "), folder / CONFIG) from error
    if kinds != ("paligemma", "gemma", "siglip_vision_model", "gemma"):
        raise unreadable(f"other networks than PaliGemma and Gemma: {', '.join(kinds)}", folder / CONFIG)
    if layers > MOST_LAYERS:
        raise unreadable(f"{layers} layers, of at most {MOST_LAYERS}", folder / CONFIG)
    if any(one != other for one, other in pairs):
        raise unreadable("an action expert with other layers or heads than the language model", folder / CONFIG)
    return config
