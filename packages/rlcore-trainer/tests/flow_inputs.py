"""Observations, noise and statistics for tests of published flow policies with two cameras."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from rlcore_trainer.control.models.action_model import ActionModel
from safetensors.torch import save_file
from torch import Tensor

STATISTICS = {
    "observation.state.mean": [0.5, -1.0, 2.0],
    "observation.state.std": [1.0, 2.0, 0.5],
    "action.mean": [0.1, 0.2],
    "action.std": [0.5, 2.0],
}


def write_statistics(folder: Path) -> None:
    """Write the preprocessor of LeRobot, as far as it has statistics."""
    step = {"registry_name": "normalizer_processor", "state_file": "policy_preprocessor_step_5.safetensors"}
    (folder / "policy_preprocessor.json").write_text(json.dumps({"name": "policy_preprocessor", "steps": [step]}))
    save_file({name: torch.tensor(one) for name, one in STATISTICS.items()}, folder / step["state_file"])


def observed(model: ActionModel, *, height: int = 20, width: int = 36) -> dict[str, Tensor]:
    observation = {"state": torch.tensor([[0.0, 1.0, 2.0], [1.0, -1.0, 0.5]])}
    observation["instruction"] = torch.stack([model.encode_instruction(text) for text in ("push the cube", "left\n")])
    for number, camera in enumerate(("top", "wrist")):
        pixels = (torch.arange(2 * height * width * 3) * (7 + number) // 11) % 256
        observation[f"images/{camera}"] = pixels.to(torch.uint8).reshape(2, height, width, 3)
    return observation


def start() -> Tensor:
    return torch.linspace(-2, 2, 2 * 5 * 4).reshape(2, 5, 4)


def drawn(model: ActionModel, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(2, *shape, generator=generator) for name, (shape, _) in model.noise_shapes().items()}
