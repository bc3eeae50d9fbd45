"""Folders of pi0 of LeRobot and of transformers, with small random weights of the real architecture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_pi0
import torch
from flow_inputs import (
    check_density_of_chain,
    check_golden,
    check_learning,
    check_refused,
    check_saving,
    check_wrong_weights,
    drawn,
    observed,
    start,
    write_statistics,
)
from made_up_weights import made_up
from rl_plugin_lerobot.flow.policy import FlowPolicy
from rl_plugin_lerobot.flow.prompt import PADDING
from rl_plugin_lerobot.pi0 import folder as pi0_folder
from rlcore.errors import DataError, UserError
from rlcore_control.models.loading import load_action_model
from rlcore_control.models.normalisation import Statistics
from safetensors.torch import load_file, save_file
from torch import Tensor

GOLDEN = Path(__file__).parent / "published" / "pi0.json"
"""Configuration, names and sizes of weights, and what LeRobot 0.6.1 computed with transformers 5.5.4 for the weights of
`made_up`, the observations of `observed` and the first noise of `start`."""
FAMILIES = ("lerobot", "transformers")


@pytest.fixture(autouse=True)
def _tiny_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    """LeRobot has no variant that is small enough for a test."""
    monkeypatch.setitem(pi0_folder.GEMMA, "gemma_2b", tiny_pi0.TEXT)
    monkeypatch.setitem(pi0_folder.GEMMA, "gemma_300m", tiny_pi0.EXPERT)
    for name, size in tiny_pi0.VISION.items():
        monkeypatch.setitem(pi0_folder.SIGLIP, name, size)


def write_lerobot(folder: Path) -> dict[str, Any]:
    golden: dict[str, Any] = json.loads(GOLDEN.read_text())
    tiny_pi0.write_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(golden["config"]))
    save_file({name: made_up(name, size) for name, size in golden["weights"].items()}, folder / "model.safetensors")
    write_statistics(folder)
    return golden


def loaded(family: str, folder: Path) -> FlowPolicy:
    if family == "lerobot":
        write_lerobot(folder)
    else:
        tiny_pi0.write_transformers(folder)
    model = load_action_model(folder)
    assert isinstance(model, FlowPolicy)
    return model


@pytest.mark.numeric
def test_actions_and_loss_are_those_of_lerobot(tmp_path: Path) -> None:
    golden = write_lerobot(tmp_path)
    check_golden(load_action_model(tmp_path), golden, atol=1e-4)


def reference(model: FlowPolicy, observation: dict[str, Tensor]) -> dict[str, Tensor]:
    """The observation as an input of transformers' model, for pictures of its size."""
    prompt_BL, size = observation["instruction"], (2, 2 * model.network.tokens_of_picture)
    images = [observation[f"images/{camera}"].permute(0, 3, 1, 2) / 127.5 - 1 for camera in ("top", "wrist")]
    return {
        "input_ids": torch.cat([torch.full(size, tiny_pi0.VOCABULARY), prompt_BL.clamp(min=0)], 1),
        "attention_mask": torch.cat([torch.ones(size, dtype=torch.int64), (prompt_BL >= 0).long()], 1),
        "pixel_values": torch.stack(images, 1),
        "pixel_attention_mask": torch.ones(2, 2, dtype=torch.bool),
        "state": torch.nn.functional.pad(observation["state"], (0, 3)),
    }


@pytest.mark.numeric
def test_actions_and_loss_are_those_of_transformers(tmp_path: Path) -> None:
    module = tiny_pi0.write_transformers(tmp_path)
    model = load_action_model(tmp_path)
    assert isinstance(model, FlowPolicy)
    observation = observed(model, height=tiny_pi0.SIDE, width=tiny_pi0.SIDE)
    given = reference(model, observation)
    for noise_BCM in (start(), torch.zeros(2, 5, 4)):
        expected_BCM = module.sample_actions(noise=noise_BCM, **given)
        with torch.no_grad():
            found_BHA = model.without_noise(observation, noise_BCM)
        torch.testing.assert_close(found_BHA, expected_BCM[:, :3, :2], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model.mode(observation), found_BHA, atol=0, rtol=0)
    action_BHA, valid_BH = torch.linspace(-1, 1, 12).reshape(2, 3, 2), torch.tensor([[True] * 3, [True, True, False]])
    noise = {"start": start(), "time": torch.tensor([[0.3], [0.9]])}
    module.config.loss_reduction = "none"
    target_BCM = torch.nn.functional.pad(torch.cat([action_BHA, action_BHA[:, -1:].expand(-1, 2, -1)], 1), (0, 2))
    time_B = noise["time"][:, 0] ** (1 / 1.5) * 0.999 + 0.001
    loss_BCM = module(actions=target_BCM, noise=start(), timestep=time_B, **given).loss
    expected_B = torch.stack([loss_BCM[0, :3, :2].mean(), loss_BCM[1, :2, :2].mean()])
    torch.testing.assert_close(model.cloning_loss(observation, action_BHA, valid_BH, noise), expected_B)


@pytest.mark.numeric
@pytest.mark.parametrize("family", FAMILIES)
def test_a_choice_has_the_same_density_when_it_is_evaluated(family: str, tmp_path: Path) -> None:
    model = loaded(family, tmp_path)
    observation = observed(model)
    decision = model.sample(observation, drawn(model))
    logprob_B, entropy_B, features_BD = model.evaluate(observation, decision.choice)
    assert torch.equal(logprob_B, decision.logprob_B)
    assert features_BD.shape == (2, model.features)
    assert entropy_B.shape == (2,)
    assert decision.action_BHA.shape == (2, 3, 2)
    logprob_B.sum().backward()
    without = [name for name, one in model.named_parameters() if one.grad is None]
    # Only the keys and values of the last layer of the language model are read.
    assert all(".language_model.layers.1." in name or ".language_model.norm" in name for name in without)
    assert not any("k_proj" in name or "v_proj" in name or "layers.0" in name for name in without)
    features_BD = model.evaluate(observation, model.sample(observation, drawn(model, seed=1)).choice)[2]
    torch.testing.assert_close(features_BD, model.evaluate(observation, decision.choice)[2])


@pytest.mark.numeric
def test_the_chain_has_the_density_of_its_noise(tmp_path: Path) -> None:
    check_density_of_chain(loaded("transformers", tmp_path))


@pytest.mark.parametrize("family", FAMILIES)
def test_pi0_learns_from_demonstrations(family: str, tmp_path: Path) -> None:
    check_learning(loaded(family, tmp_path))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_pi0_keeps_weights_names_and_files(family: str, tmp_path: Path) -> None:
    model = loaded(family, tmp_path / "a")
    check_saving(model, tmp_path / "b")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert {name: one.shape for name, one in before.items()} == {name: one.shape for name, one in after.items()}
    names = {path.name for path in (tmp_path / "a").iterdir()} | {"rlcore_policy.json"}
    assert {path.name for path in (tmp_path / "b").iterdir()} == names - {"generation_config.json"}


@pytest.mark.numeric
def test_transformers_reads_what_was_saved(tmp_path: Path) -> None:
    from transformers import PI0ForConditionalGeneration

    model = loaded("transformers", tmp_path / "a")
    with torch.no_grad():
        next(model.parameters()).add_(0.5)
    model.save(tmp_path / "b")
    module, report = PI0ForConditionalGeneration.from_pretrained(tmp_path / "b", output_loading_info=True)
    assert not any(report[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    observation = observed(model, height=tiny_pi0.SIDE, width=tiny_pi0.SIDE)
    expected_BCM = module.eval().sample_actions(noise=torch.zeros(2, 5, 4), **reference(model, observation))
    torch.testing.assert_close(model.mode(observation), expected_BCM[:, :3, :2], atol=1e-5, rtol=1e-5)


@pytest.mark.numeric
def test_only_a_folder_without_statistics_takes_those_of_demonstrations(tmp_path: Path) -> None:
    statistics = Statistics(
        state_mean_S=torch.tensor([1.0, 2.0, 3.0]),
        state_std_S=torch.tensor([2.0, 1.0, 0.0]),
        action_low_A=torch.tensor([-4.0, 0.0]),
        action_high_A=torch.tensor([4.0, 1.0]),
    )
    model = loaded("transformers", tmp_path / "a")
    observation = observed(model)
    before_BHA = model.mode(observation)
    moved = observation | {"state": observation["state"] * torch.tensor([2.0, 1.0, 0.1]) + statistics.state_mean_S}
    model.use_statistics(statistics)
    torch.testing.assert_close(model.mode(moved), before_BHA * torch.tensor([4.0, 0.5]) + torch.tensor([0.0, 0.5]))
    model.save(tmp_path / "b")
    again = load_action_model(tmp_path / "b")
    assert torch.equal(again.mode(moved), model.mode(moved))
    given = loaded("lerobot", tmp_path / "c")
    before_BHA = given.mode(observation)
    given.use_statistics(statistics)
    assert torch.equal(given.mode(observation), before_BHA)
    with pytest.raises(DataError):
        loaded("transformers", tmp_path / "d").use_statistics(
            Statistics(
                state_mean_S=torch.zeros(2),
                state_std_S=torch.ones(2),
                action_low_A=torch.zeros(2),
                action_high_A=torch.ones(2),
            )
        )


def test_an_instruction_cannot_contain_special_tokens(tmp_path: Path) -> None:
    model = loaded("transformers", tmp_path)
    bos, unknown = tiny_pi0.WORDS.index("<bos>"), tiny_pi0.WORDS.index("<unk>")
    cube, end = tiny_pi0.WORDS.index("cube"), tiny_pi0.WORDS.index("\n")
    assert model.encode_instruction("<bos> cube")[:6].tolist() == [bos, unknown, unknown, cube, end, PADDING]
    assert len(model.encode_instruction("cube " * 100)) == model.instruction_length == 48


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "rlcore_policy.json"])
@pytest.mark.parametrize("content", [None, b"{", b'{"a": 1}'])
def test_damaged_files_of_transformers_are_reported(file: str, content: bytes | None, tmp_path: Path) -> None:
    tiny_pi0.write_transformers(tmp_path)
    (tmp_path / file).unlink() if content is None else (tmp_path / file).write_bytes(content)
    check_refused(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("chunk_size", "many"),
        ("max_state_dim", 2),
        ("max_action_dim", 8),
        ("time_sampling_beta_beta", 2.0),
        ("vlm_config", {"model_type": "llava"}),
        ("vlm_config", 3),
        ("dit_config", {"model_type": "gemma", **tiny_pi0.EXPERT, "num_hidden_layers": 10**9}),
        ("dit_config", {"model_type": "gemma", **tiny_pi0.EXPERT, "num_hidden_layers": 3}),
        ("dit_config", {"model_type": "gemma", **tiny_pi0.EXPERT, "hidden_size": 13}),
    ],
)
def test_a_pi0_of_transformers_with_wrong_values_is_refused(key: str, value: object, tmp_path: Path) -> None:
    tiny_pi0.write_transformers(tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(described | {key: value}))
    check_refused(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("paligemma_variant", "gemma_7b"),
        ("image_resolution", [28, 30]),
        ("use_relative_actions", True),
        ("n_obs_steps", 2),
        ("proj_width", 1024),
        ("type", "pi05"),
        ("max_action_dim", 1),
        ("normalization_mapping", {"STATE": "SQUARES"}),
        ("input_features", {"observation.state": {"type": "STATE", "shape": [3]}}),
        ("input_features", {"observation.environment_state": {"type": "ENV", "shape": [3]}}),
    ],
)
def test_a_pi0_of_lerobot_with_wrong_values_is_refused(key: str, value: object, tmp_path: Path) -> None:
    golden = write_lerobot(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(golden["config"] | {key: value}))
    check_refused(tmp_path)


def test_sizes_of_a_lerobot_folder_cannot_be_replaced(tmp_path: Path) -> None:
    write_lerobot(tmp_path)
    (tmp_path / "rlcore_policy.json").write_text('{"noise_level": 0.1}')
    assert load_action_model(tmp_path).chunk == 3
    (tmp_path / "rlcore_policy.json").write_text('{"n_action_steps": 1}')
    with pytest.raises(UserError, match="n_action_steps"):
        load_action_model(tmp_path)


@pytest.mark.parametrize("damage", ["name", "shape", "nan", "statistics"])
def test_wrong_weights_of_lerobot_are_listed(damage: str, tmp_path: Path) -> None:
    write_lerobot(tmp_path)
    expected = {"name": "missing: embed_action_time.state_proj.bias", "shape": "[7] instead of [12]", "nan": "NaN"}
    check_wrong_weights(tmp_path, "model.state_proj.bias", damage, expected)


@pytest.mark.numeric
def test_a_low_noise_level_gives_the_actions_without_noise(tmp_path: Path) -> None:
    tiny_pi0.write_transformers(tmp_path, settings=tiny_pi0.SETTINGS | {"noise_level": 1e-4})
    model = load_action_model(tmp_path)
    assert isinstance(model, FlowPolicy)
    observation, noise = observed(model), drawn(model)
    with torch.no_grad():
        action_BHA = model.sample(observation, noise).action_BHA
        torch.testing.assert_close(action_BHA, model.without_noise(observation, noise["start"]), atol=1e-3, rtol=0)


def test_pictures_and_instruction_are_read_once_for_a_decision(tmp_path: Path) -> None:
    model = loaded("transformers", tmp_path)
    observation, reads = observed(model), []
    model.network.pi0.model.vlm.register_forward_hook(lambda *_: reads.append(1))
    choice = model.sample(observation, drawn(model)).choice
    model.evaluate(observation, choice)
    model.mode(observation)
    assert len(reads) == 3


def test_an_observation_of_another_size_is_refused(tmp_path: Path) -> None:
    model = loaded("transformers", tmp_path)
    with pytest.raises(DataError, match="state of size 3"):
        model.mode(observed(model) | {"state": torch.zeros(2, 4)})


def test_pi0_without_a_camera_is_refused(tmp_path: Path) -> None:
    model = loaded("lerobot", tmp_path)
    observation = observed(model)
    del observation["images/wrist"]
    with pytest.raises(DataError, match="images/wrist"):
        model.mode(observation)
