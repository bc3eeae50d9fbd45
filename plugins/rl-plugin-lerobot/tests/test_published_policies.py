"""Folders of LeRobot's ACT, with small random weights of the real architecture."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_weights import made_up
from rlcore.errors import DataError, UserError
from rlcore.models.folder import check_model_folder
from rlcore_control.models.action_model import ActionModel
from rlcore_control.models.loading import load_action_model
from safetensors.torch import load_file, save_file
from torch import Tensor

GOLDEN = Path(__file__).parent / "published"
"""Configurations, names and sizes of weights, preprocessors and actions that LeRobot 0.4.4 gave for the weights of
`made_up` and the observations of `observed`."""
STATISTICS = {
    "observation.state": {"mean": [0.5, -1.0, 2.0], "std": [1.0, 2.0, 0.5]},
    "observation.environment_state": {"mean": [0.0, 1.0], "std": [1.0, 1.0]},
    "action": {"mean": [0.1, 0.2], "std": [0.5, 2.0]},
}
COLOURS = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}


def statistics(golden: dict[str, Any]) -> dict[str, Tensor]:
    found = {}
    for name in [*golden["config"]["input_features"], "action"]:
        for which, values in STATISTICS.get(name, COLOURS).items():
            value = torch.tensor(values)
            found[f"{name}.{which}"] = value[:, None, None] if "images" in name else value
    return found


def folder_of(kind: str, folder: Path, *, old: bool = False) -> dict[str, Any]:
    """Write a folder as LeRobot does; before version 0.4, statistics were among the weights."""
    golden: dict[str, Any] = json.loads((GOLDEN / f"act_{kind}.json").read_text())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(golden["config"]))
    weights = {name: made_up(name, shape) for name, shape in golden["weights"].items()}
    if old:
        for name, value in statistics(golden).items():
            feature, _, which = name.rpartition(".")
            start = "unnormalize_outputs" if feature == "action" else "normalize_inputs"
            weights[f"{start}.buffer_{feature.replace('.', '_')}.{which}"] = value
    else:
        (folder / "policy_preprocessor.json").write_text(json.dumps(golden["preprocessor"]))
        steps = golden["preprocessor"]["steps"]
        file = next(one["state_file"] for one in steps if one["registry_name"] == "normalizer_processor")
        save_file(statistics(golden), folder / file)
    save_file(weights, folder / "model.safetensors")
    return golden


def observed(kind: str) -> dict[str, Tensor]:
    state_BS = torch.tensor([[0.0, 1.0, 2.0], [1.0, -1.0, 0.5]])
    if kind == "env":
        return {"state": torch.cat([state_BS, torch.tensor([[0.3, 0.6], [-0.5, 2.0]])], 1)}
    observation = {"state": state_BS}
    for number, camera in enumerate(("top", "wrist")):
        pixels = (torch.arange(2 * 64 * 96 * 3) * (7 + number) // 11) % 256
        observation[f"images/{camera}"] = pixels.to(torch.uint8).reshape(2, 64, 96, 3)
    return observation


def loaded(kind: str, folder: Path) -> ActionModel:
    folder_of(kind, folder)
    return load_action_model(folder)


@pytest.mark.numeric
@pytest.mark.parametrize(("kind", "old"), [("env", False), ("env", True), ("images", False)])
def test_actions_are_those_of_lerobot(kind: str, old: bool, tmp_path: Path) -> None:
    golden = folder_of(kind, tmp_path, old=old)
    model = load_action_model(tmp_path)
    assert model.chunk == 4
    assert model.instruction_length == 0
    torch.testing.assert_close(model.mode(observed(kind)), torch.tensor(golden["actions"]), atol=2e-5, rtol=0)


@pytest.mark.numeric
def test_a_published_policy_has_a_density_and_trains(tmp_path: Path) -> None:
    model, observation = loaded("env", tmp_path), observed("env")
    decision = model.sample(observation, {"action": torch.randn(2, 4, 2, generator=torch.Generator().manual_seed(0))})
    logprob_B, _, features_BD = model.evaluate(observation, decision.choice)
    torch.testing.assert_close(logprob_B, decision.logprob_B, atol=1e-5, rtol=0)
    assert features_BD.shape == (2, model.features)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(15):
        loss = model.cloning_loss(observation, torch.full((2, 4, 2), 0.7), torch.ones(2, 4, dtype=torch.bool)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def test_a_saved_policy_keeps_all_weights_and_files(tmp_path: Path) -> None:
    model = loaded("env", tmp_path / "a")
    with torch.no_grad():
        next(iter(model.parameters())).add_(0.01)
    model.save(tmp_path / "b")
    again = load_action_model(tmp_path / "b")
    assert torch.equal(again.mode(observed("env")), model.mode(observed("env")))
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert {name: one.shape for name, one in before.items()} == {name: one.shape for name, one in after.items()}
    assert any(name.startswith("model.vae_encoder") for name in after)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("type", "diffusion"),
        ("vision_backbone", "resnet50"),
        ("temporal_ensemble_coeff", 0.01),
        ("chunk_size", "many"),
        ("normalization_mapping", {"STATE": "SQUARES"}),
        ("normalization_mapping", 5),
        ("n_action_steps", 99),
        ("n_encoder_layers", 65_536),
        ("normalization_mapping", []),
        *[("chunk_size", 5.0), ("n_action_steps", True), ("n_action_steps", "2")],
        *[("dropout", value) for value in (2.0, "x", math.nan)],
        *[
            ("output_features", {"action": {"type": "ACTION", "shape": shape}})
            for shape in ([10**12], [-4], [2, 2], [2.0], "2")
        ],
        *[
            ("input_features", {name: {"type": "STATE", "shape": shape}})
            for name, shape in (
                ("observation.state", [-4]),
                ("observation.state", [10**15]),
                ("observation.images.top", [3, 10**15, 4]),
                ("observation.images.top", [3, 4]),
            )
        ],
        ("input_features", {"observation.touch": {"type": "STATE", "shape": [3]}}),
    ],
)
def test_a_policy_that_cannot_be_computed_is_refused(key: str, value: object, tmp_path: Path) -> None:
    golden = folder_of("env", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(golden["config"] | {key: value}))
    with pytest.raises(UserError) as caught:
        load_action_model(tmp_path)
    assert caught.value.where == str(tmp_path / "config.json")
    if key in ("normalization_mapping", "chunk_size", "n_action_steps", "dropout"):
        assert str(caught.value.found).startswith((f"{key} = ", "the normalisation SQUARES"))


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("observation.state.std", torch.tensor([1.0, -2.0, 0.5]), "-2.0"),
        ("action.std", torch.ones(2, dtype=torch.int8), "int8"),
    ],
)
def test_statistics_that_are_none_are_refused(name: str, value: Tensor, found: str, tmp_path: Path) -> None:
    folder_of("env", tmp_path)
    (file,) = tmp_path.glob("policy_preprocessor_*.safetensors")
    save_file({**load_file(file), name: value}, file)
    with pytest.raises(UserError, match=name.replace(".", r"\.")) as caught:
        load_action_model(tmp_path)
    assert found in str(caught.value.found)


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn", "float8_e5m2"])
def test_weights_of_eight_bits_are_refused(dtype: str, tmp_path: Path) -> None:
    folder_of("env", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.action_head.bias"] = torch.ones(2).to(getattr(torch, dtype))
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=rf"action_head\.bias {dtype}"):
        load_action_model(tmp_path)


@pytest.mark.parametrize("kind", ["smolvla", "pi0"])
def test_weights_of_another_family_are_refused_at_once(kind: str, tmp_path: Path) -> None:
    golden = folder_of("env", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(golden["config"] | {"type": kind}))
    with pytest.raises(UserError, match="another family"):
        load_action_model(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "policy_preprocessor.json"])
def test_a_pipe_in_a_published_folder_is_refused(name: str, tmp_path: Path) -> None:
    folder_of("env", tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match="pipe"):
        load_action_model(tmp_path)


def test_missing_parts_of_a_published_folder_are_reported(tmp_path: Path) -> None:
    folder_of("env", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.stranger"] = weights.pop("model.action_head.bias")
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(UserError) as caught:
        load_action_model(tmp_path)
    assert "missing: action_head.bias" in str(caught.value)
    assert "unexpected: stranger" in str(caught.value)
    folder_of("env", tmp_path)
    (tmp_path / "policy_preprocessor.json").unlink()
    with pytest.raises(UserError, match=r"statistic observation\.state\.mean"):
        load_action_model(tmp_path)


def test_a_published_policy_without_a_camera_is_refused(tmp_path: Path) -> None:
    model, observation = loaded("images", tmp_path), observed("images")
    del observation["images/top"]
    with pytest.raises(DataError, match="images/top"):
        model.mode(observation)


def test_weights_in_several_files_are_read(tmp_path: Path) -> None:
    folder_of("env", tmp_path)
    expected = load_action_model(tmp_path).mode(observed("env"))
    weights = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    places = {name: f"model-{1 + n % 2:05d}-of-00002.safetensors" for n, name in enumerate(weights)}
    for file in set(places.values()):
        save_file({name: one for name, one in weights.items() if places[name] == file}, tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    check_model_folder(tmp_path)
    assert torch.equal(load_action_model(tmp_path).mode(observed("env")), expected)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(UserError, match="model-00002-of-00002"):
        load_action_model(tmp_path)
    index.write_text(json.dumps({"weight_map": {"model.action_head.bias": "../outside.safetensors"}}))
    with pytest.raises(UserError, match="outside"):
        load_action_model(tmp_path)


@pytest.mark.parametrize("kind", ["pi05", "diffusion"])
def test_another_family_is_refused_with_those_that_are_supported(kind: str, tmp_path: Path) -> None:
    golden = folder_of("env", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(golden["config"] | {"type": kind}))
    with pytest.raises(UserError) as caught:
        load_action_model(tmp_path)
    assert caught.value.found == f"type {kind}"
    assert all(name in str(caught.value) for name in ("ACT", "pi0", "SmolVLA", "rl-plugin-lerobot", "rlcore-vla"))
