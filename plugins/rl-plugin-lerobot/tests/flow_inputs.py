"""Observations, noise, statistics and common checks of published flow policies with two cameras."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from rl_plugin_lerobot.flow.policy import FlowPolicy
from rlcore.errors import UserError
from rlcore_control.models.action_model import ActionModel
from rlcore_control.models.loading import load_action_model
from safetensors.torch import load_file, save_file
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


def check_learning(model: ActionModel) -> None:
    """Check that the loss of a demonstration halves in 20 steps."""
    observation, trained = observed(model), [one for one in model.parameters() if one.requires_grad]
    optimiser = torch.optim.Adam(trained, lr=3e-3)
    noise = {"start": start(), "time": torch.tensor([[0.3], [0.9]])}
    losses = []
    for _ in range(20):
        loss_B = model.cloning_loss(observation, torch.full((2, 3, 2), 0.7), torch.ones(2, 3, dtype=torch.bool), noise)
        optimiser.zero_grad()
        loss_B.mean().backward()
        optimiser.step()
        losses.append(float(loss_B.mean().detach()))
    assert losses[-1] < 0.5 * losses[0]


def check_saving(model: ActionModel, folder: Path) -> None:
    """Check that a folder with changed weights has the same actions, and names and sizes of weights."""
    observation = observed(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01)
    copy.deepcopy(model).save(folder)
    assert torch.equal(load_action_model(folder).mode(observation), model.mode(observation))


def check_wrong_weights(folder: Path, weight: str, damage: str, expected: Mapping[str, str]) -> None:
    """Damage a weight or the statistics of a folder, and check what the error says."""
    weights = load_file(folder / "model.safetensors")
    changed = weights.pop(weight)
    if damage == "name":
        weights["model.stranger"] = changed
    elif damage == "shape":
        weights[weight] = changed[:7].clone()
    else:
        weights[weight] = changed * float("nan") if damage == "nan" else changed
    save_file(weights, folder / "model.safetensors")
    if damage == "statistics":
        (folder / "policy_preprocessor.json").unlink()
    with pytest.raises(UserError) as caught:
        load_action_model(folder)
    assert expected.get(damage, "statistic observation.state.mean") in str(caught.value)


def check_refused(folder: Path) -> UserError:
    """Check that a folder is refused with a fix, and return the error."""
    with pytest.raises(UserError) as caught:
        load_action_model(folder)
    assert caught.value.fix
    return caught.value
