"""Folders of LeRobot's ACT with small random weights of the real architecture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from rl_plugin_lerobot.act.network import Act, ActConfig
from safetensors.torch import save_file

SIZES = {"chunk_size": 5, "n_action_steps": 4, "dim_model": 16, "n_heads": 2, "dim_feedforward": 24, "latent_dim": 4}
SIZES |= {"n_encoder_layers": 1, "n_decoder_layers": 1}
STEP = "policy_preprocessor_step_3_normalizer_processor.safetensors"


def write(folder: Path, *, state: int, actions: int, cameras: Mapping[str, tuple[int, int]]) -> None:
    """Write a folder as LeRobot does: configuration, weights, and the statistics of the state and the actions."""
    folder.mkdir(parents=True)
    pictures = {f"observation.images.{name}": [3, *size] for name, size in cameras.items()}
    inputs = {"observation.state": {"type": "STATE", "shape": [state]}}
    inputs |= {name: {"type": "VISUAL", "shape": shape} for name, shape in pictures.items()}
    described = {
        "type": "act",
        **SIZES,
        "vision_backbone": "resnet18",
        "input_features": inputs,
        "output_features": {"action": {"type": "ACTION", "shape": [actions]}},
        "normalization_mapping": {"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"},
    }
    (folder / "config.json").write_text(json.dumps(described), encoding="utf-8")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Act(ActConfig.model_validate(described), state, 0, pictures=bool(cameras), actions=actions)
    save_file({f"model.{name}": one for name, one in network.state_dict().items()}, folder / "model.safetensors")
    sizes = {"observation.state": state, "action": actions}
    statistics = {f"{name}.mean": torch.zeros(size) for name, size in sizes.items()}
    statistics |= {f"{name}.std": torch.full((size,), 0.5) for name, size in sizes.items()}
    save_file(statistics, folder / STEP)
    steps = [{"registry_name": "normalizer_processor", "config": {}, "state_file": STEP}]
    (folder / "policy_preprocessor.json").write_text(json.dumps({"name": "policy_preprocessor", "steps": steps}))
