"""Observations, noise, statistics and common checks of published flow policies with two cameras."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rl_plugin_lerobot.flow.policy import FlowPolicy
from rlcore_control.models.action_model import ActionModel
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


def check_golden(model: ActionModel, golden: Mapping[str, Any], *, atol: float) -> None:
    """Check chunk, cameras, actions, mode and loss against what LeRobot computed, on another machine.

    With the kernels of other processors, actions differ by up to 2e-5 for pi0 and 3e-6 for SmolVLA.
    """
    assert isinstance(model, FlowPolicy)
    observation = observed(model)
    assert model.chunk == 3
    assert sorted(model.spaces.cameras) == ["top", "wrist"]
    with torch.no_grad():
        actions_BHA = model.without_noise(observation, start())
    torch.testing.assert_close(actions_BHA, torch.tensor(golden["actions"]), atol=atol, rtol=0)
    torch.testing.assert_close(model.mode(observation), torch.tensor(golden["mode"]), atol=atol, rtol=0)
    action_BHA = torch.linspace(-1, 1, 40).reshape(2, 5, 4)[:, :3, :2] * torch.tensor([0.5, 2.0])
    noise = {"start": start(), "time": torch.tensor([[0.3], [0.9]])}
    loss_B = model.cloning_loss(observation, action_BHA + torch.tensor([0.1, 0.2]), torch.ones(2, 3).bool(), noise)
    torch.testing.assert_close(loss_B, torch.tensor(golden["loss"]), atol=atol, rtol=0)


def check_density_of_chain(model: ActionModel) -> None:
    """Check the log-probability of a choice against the density of its noise and the Jacobian of the chain."""
    observation, noise = observed(model), drawn(model)
    one = {name: rows[:1] for name, rows in observation.items()}

    def chain(steps: Tensor) -> Tensor:
        return model.sample(one, {"start": noise["start"][:1], "steps": steps}).choice["chain"]

    jacobian = torch.autograd.functional.jacobian(chain, noise["steps"][:1])
    size = noise["steps"][0].numel()
    _, volume = torch.linalg.slogdet(jacobian.reshape(size, size))
    standard = torch.distributions.Normal(0.0, 1.0).log_prob(noise["steps"][:1]).sum()
    logprob_B = model.sample(one, {name: rows[:1] for name, rows in noise.items()}).logprob_B
    torch.testing.assert_close(logprob_B[0], standard - volume, atol=1e-3, rtol=1e-4)
