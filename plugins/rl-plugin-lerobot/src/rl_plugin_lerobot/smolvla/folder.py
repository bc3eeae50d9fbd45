"""The configuration of SmolVLA in folders of LeRobot.

The folder names its vision-language model, and does not contain its sizes: those of the published model are known here,
and others are in the file `VLM_CONFIG`, which is ``config.json`` of that model.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from rlcore.errors import UserError
from rlcore.json_files import read_json
from rlcore_control.models.folder import CONFIG, unreadable
from torch import Tensor

from rl_plugin_lerobot.flow.folder import (
    MOST_LAYERS,
    FlowFolder,
    FlowSizes,
    Size,
    lerobot_folder,
    read_features,
    read_sizes,
)

VLM_CONFIG = "vlm_config.json"
"""File with the sizes of the vision-language model."""
SMOLVLM: Mapping[str, Mapping[str, Any]] = {
    "HuggingFaceTB/SmolVLM2-500M-Video-Instruct": {
        "scale_factor": 4,
        "text_config": {
            **{"hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 32, "vocab_size": 49_280},
            **{"num_attention_heads": 15, "num_key_value_heads": 5, "head_dim": 64, "rms_norm_eps": 1e-5},
        },
        "vision_config": {
            **{"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
            **{"image_size": 512, "patch_size": 16},
        },
    }
}
"""Sizes of vision-language models by their names on the hub."""
_LONGEST_WAVE = 10_000.0
"""Base of rotary positions. It is that of LeRobot, whatever the vision-language model was trained with."""
_BLOCK = 256
"""The width of the expert's feed-forward layers is a multiple of this."""


class Sizes(FlowSizes):
    """The keys of ``config.json`` that change what is computed or trained."""

    n_action_steps: Size = 50
    num_steps: Annotated[int, Field(ge=1, le=1000)] = 10
    vlm_model_name: str = "HuggingFaceTB/SmolVLM2-500M-Video-Instruct"
    num_vlm_layers: int = 16
    num_expert_layers: int = -1
    self_attn_every_n_layers: int = 2
    expert_width_multiplier: Annotated[float, Field(gt=0, le=16)] = 0.75
    attention_mode: str = "cross_attn"
    resize_imgs_with_padding: Annotated[tuple[Size, Size], Field(strict=False)] = (512, 512)
    add_image_special_tokens: bool = False
    empty_cameras: Annotated[int, Field(ge=0, le=64)] = 0
    freeze_vision_encoder: bool = True
    train_expert_only: bool = True
    train_state_proj: bool = True
    adapt_to_pi_aloha: Literal[False] = False
    use_delta_joint_actions_aloha: Literal[False] = False
    use_peft: Literal[False] = False

    def reads_itself(self, layer: int) -> bool:
        """Whether the actions read themselves in a layer, besides what the vision-language model has computed."""
        every = self.self_attn_every_n_layers
        return "cross" not in self.attention_mode or (every > 0 and layer % every == 0)


def read_lerobot(described: Mapping[str, Any], weights: Mapping[str, Tensor], folder: Path) -> FlowFolder:
    """Read a folder of LeRobot.

    Raises:
        UserError: a file is damaged, or the policy needs something that rlcore does not compute.
    """
    sizes = read_sizes(Sizes, described, folder)
    config = vlm_config(sizes, folder)
    side, patch = sizes.resize_imgs_with_padding[0], config.vision_config.patch_size * config.scale_factor
    layers = config.text_config.num_hidden_layers
    problems = {
        "resize_imgs_with_padding": sizes.resize_imgs_with_padding[1] != side or side % patch != 0,
        "num_expert_layers": sizes.num_expert_layers > 0 and layers % sizes.num_expert_layers != 0,
        "expert_width_multiplier": expert_config(config, sizes).hidden_size % 2 != 0,
    }
    # With fewer layers of the expert, LeRobot makes some layers for one kind of attention and computes the other.
    if not problems["num_expert_layers"]:
        every = layers // expert_config(config, sizes).num_hidden_layers
        problems["self_attn_every_n_layers"] = any(
            sizes.reads_itself(layer) != (layer % every == 0 and sizes.reads_itself(layer // every))
            for layer in range(layers)
        )
    fix = "choose a policy with square pictures, a state, absolute actions and the attention of smolvla_base"
    features = read_features("SmolVLA", described, sizes, folder, problems, fix=fix)
    return lerobot_folder(
        described, weights, folder, features=features, sizes=sizes, steps=sizes.num_steps, config=config
    )


def expert_config(config: Any, sizes: Sizes) -> Any:
    """Return the configuration of the action expert: the language model with another width and number of layers."""
    expert = copy.deepcopy(config.text_config)
    width = int(expert.hidden_size * sizes.expert_width_multiplier)
    inner = 4 * int(2 * width / 3)
    expert.hidden_size, expert.intermediate_size = width, -(-inner // _BLOCK) * _BLOCK
    if sizes.num_expert_layers > 0:
        expert.num_hidden_layers = sizes.num_expert_layers
    expert.vocab_size, expert.pad_token_id = 1, None  # no memory for embeddings that are not used
    return expert


def vlm_config(sizes: Sizes, folder: Path) -> Any:
    """Return a ``SmolVLMConfig`` with the layers that the policy uses.

    Raises:
        UserError: the sizes are unknown or damaged.
    """
    from transformers import SmolVLMConfig

    path = folder / VLM_CONFIG
    try:
        if path.is_file():
            described = read_json(path)
        elif sizes.vlm_model_name in SMOLVLM:
            described = copy.deepcopy(SMOLVLM[sizes.vlm_model_name])
        else:
            raise UserError(
                "rlcore must know the sizes of the vision-language model",
                found=f"vlm_model_name {sizes.vlm_model_name}, and no {VLM_CONFIG}",
                where=str(folder / CONFIG),
                fix=f"copy config.json of {sizes.vlm_model_name} into the folder as {VLM_CONFIG}",
            )
        kind = described.get("model_type", "smolvlm")
        if kind != "smolvlm":
            raise ValueError(f"model_type {kind} instead of smolvlm")
        config: Any = SmolVLMConfig(**{**described, "pad_token_id": None})
        text, vision = config.text_config, config.vision_config
        layers = max(text.num_hidden_layers, vision.num_hidden_layers)
        if min(text.num_hidden_layers, text.num_key_value_heads, vision.patch_size, config.scale_factor) < 1:
            raise ValueError("a size below 1")
        if text.model_type != "llama" or text.num_attention_heads % text.num_key_value_heads:
            raise ValueError(f"a language model {text.model_type} with {text.num_attention_heads} heads")
    except UserError:
        raise
    except Exception as error:  # transformers and its validation raise several types
        raise unreadable(f"{type(error).__name__}: {error}".replace("\n", " "), path) from error
    if layers > MOST_LAYERS:
        raise unreadable(f"{layers} layers, of at most {MOST_LAYERS}", path)
    if sizes.num_vlm_layers > 0:
        text.num_hidden_layers = min(text.num_hidden_layers, sizes.num_vlm_layers)
    text.rope_parameters = {"rope_type": "default", "rope_theta": _LONGEST_WAVE}
    return config
