"""Folders of LeRobot's SmolVLA, with small random weights of the real architecture."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import tiny_smolvla
import torch
from flow_inputs import (
    STATISTICS,
    check_density_of_chain,
    check_golden,
    check_learning,
    check_refused,
    check_saving,
    check_wrong_weights,
    drawn,
    observed,
    write_statistics,
)
from made_up_weights import made_up
from rl_plugin_lerobot.flow.policy import FlowPolicy
from rl_plugin_lerobot.flow.prompt import PADDING
from rl_plugin_lerobot.smolvla.folder import Sizes, vlm_config
from rl_plugin_lerobot.smolvla.network import SmolVLANetwork
from rlcore.errors import DataError, UserError
from rlcore_control.models.loading import load_action_model
from rlcore_control.models.normalisation import Statistics
from safetensors.torch import load_file, save_file

GOLDEN = Path(__file__).parent / "published" / "smolvla.json"
"""Configuration, names and sizes of weights, and what LeRobot 0.6.1 computed with transformers 5.5.4 for the weights of
`made_up`, the observations of `observed` and the first noise of `start`. LeRobot had the vision-language model of
`tiny_smolvla.VLM` in a folder."""
CASES = ("cross", "special", "self", "sparse")
FREE = {"freeze_vision_encoder": False, "train_expert_only": False}
EMBEDDINGS, OUTPUT = (
    f"model.vlm_with_expert.vlm.{name}.weight" for name in ("model.text_model.embed_tokens", "lm_head")
)
PROJECTION = "model.vlm_with_expert.lm_expert.layers.1.self_attn.k_proj.weight"


def write(folder: Path, case: str = "cross", **changed: object) -> dict[str, Any]:
    """Write a folder as LeRobot does. Returns what LeRobot computed."""
    golden = json.loads(GOLDEN.read_text())
    found: dict[str, Any] = golden["cases"][case]
    tiny_smolvla.write_vlm(folder)
    (folder / "config.json").write_text(json.dumps(golden["config"] | found["config"] | changed))
    sizes = {name: size for name, size in (golden["weights"] | found["weights"]).items() if size is not None}
    save_file({name: made_up(name, size) for name, size in sizes.items()}, folder / "model.safetensors")
    write_statistics(folder)
    return found


def loaded(folder: Path, case: str = "cross", **changed: object) -> FlowPolicy:
    write(folder, case, **changed)
    model = load_action_model(folder)
    assert isinstance(model, FlowPolicy)
    return model


@pytest.mark.numeric
@pytest.mark.parametrize("case", CASES)
def test_actions_and_loss_are_those_of_lerobot(case: str, tmp_path: Path) -> None:
    golden = write(tmp_path, case)
    check_golden(load_action_model(tmp_path), golden, atol=5e-5)


@pytest.mark.numeric
def test_a_folder_before_processors_has_its_statistics_among_the_weights(tmp_path: Path) -> None:
    golden = write(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights = {name.replace("model.", "model._orig_mod.", 1): one for name, one in weights.items()}
    weights["normalize_inputs.so100_buffer_observation_state.mean"] = torch.zeros(3)  # of another dataset
    for name, values in STATISTICS.items():
        feature, _, which = name.rpartition(".")
        start_of_name = "unnormalize_outputs" if feature == "action" else "normalize_inputs"
        weights[f"{start_of_name}.buffer_{feature.replace('.', '_')}.{which}"] = torch.tensor(values)
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "policy_preprocessor.json").unlink()
    model = load_action_model(tmp_path)
    torch.testing.assert_close(model.mode(observed(model)), torch.tensor(golden["mode"]), atol=1e-5, rtol=0)
    model.save(tmp_path / "again")
    assert load_file(tmp_path / "again" / "model.safetensors").keys() == weights.keys()


@pytest.mark.numeric
def test_a_folder_of_several_datasets_takes_the_statistics_of_demonstrations(tmp_path: Path) -> None:
    golden = write(tmp_path / "a")
    file = "policy_preprocessor_step_5.safetensors"
    others = {f"so100.buffer.{name}": torch.tensor(one) for name, one in STATISTICS.items()}
    save_file(others, tmp_path / "a" / file)
    step = {"registry_name": "unnormalizer_processor"}
    (tmp_path / "a" / "policy_postprocessor.json").write_text(json.dumps({"steps": [step]}))
    model = load_action_model(tmp_path / "a")
    with pytest.raises(DataError, match=r"warmup\.steps") as caught:
        model.mode(observed(model))
    assert caught.value.where == str(tmp_path / "a" / "policy_preprocessor.json")
    statistics = Statistics(
        state_mean_S=torch.tensor(STATISTICS["observation.state.mean"]),
        state_std_S=torch.tensor(STATISTICS["observation.state.std"]),
        action_low_A=torch.tensor([-0.4, -1.8]),
        action_high_A=torch.tensor([0.6, 2.2]),
    )
    critic = copy.deepcopy(model)
    model.use_statistics(statistics)
    observation = observed(model)
    critic.load_state_dict(model.state_dict())
    assert torch.equal(critic.mode(observation), model.mode(observation))
    torch.testing.assert_close(model.mode(observation), torch.tensor(golden["mode"]), atol=1e-5, rtol=0)
    model.save(tmp_path / "b")
    again = load_action_model(tmp_path / "b")
    again.use_statistics(dataclasses.replace(statistics, state_mean_S=torch.zeros(3)))
    assert torch.equal(again.mode(observation), model.mode(observation))
    (after,) = json.loads((tmp_path / "b" / "policy_postprocessor.json").read_text())["steps"]
    before, after = load_file(tmp_path / "b" / file), load_file(tmp_path / "b" / after["state_file"])
    assert before.keys() == others.keys() | STATISTICS.keys()
    assert after.keys() == STATISTICS.keys()
    assert all(torch.allclose(after[name], torch.tensor(one)) for name, one in STATISTICS.items())


def test_numbered_pictures_are_cameras(tmp_path: Path) -> None:
    features = {"observation.state": {"shape": [3]}, "observation.image": {"shape": [3, 20, 36]}}
    model = loaded(tmp_path, input_features=features | {"observation.image2": {"shape": [3, 20, 36]}})
    assert list(model.spaces.cameras) == ["image", "image2"]


@pytest.mark.parametrize("free", [False, True])
def test_a_choice_has_the_same_density_when_it_is_evaluated(free: bool, tmp_path: Path) -> None:
    model = loaded(tmp_path, **(FREE if free else {}))
    observation = observed(model)
    decision = model.sample(observation, drawn(model))
    logprob_B, entropy_B, features_BD = model.evaluate(observation, decision.choice)
    assert torch.equal(logprob_B, decision.logprob_B)
    assert features_BD.shape == (2, model.features)
    assert entropy_B.shape == (2,)
    logprob_B.sum().backward()
    without = {name for name, one in model.named_parameters() if one.grad is None}
    frozen = {name for name, one in model.named_parameters() if not one.requires_grad}
    assert frozen == (set() if free else {name for name in dict(model.named_parameters()) if ".vlm." in name})
    # Only the keys and values of the last layer of the language model are read.
    unread = (".layers.2.self_attn.q_", ".layers.2.self_attn.o_", ".layers.2.mlp", ".layers.2.post", ".norm.")
    assert all(".vlm.text_model." in name and any(one in name for one in unread) for name in without - frozen)


@pytest.mark.numeric
def test_the_chain_has_the_density_of_its_noise(tmp_path: Path) -> None:
    check_density_of_chain(loaded(tmp_path))


@pytest.mark.numeric
@pytest.mark.parametrize("part", ["expert.layers.1.self_attn.k_proj", "vlm.connector.modality_projection.proj"])
def test_the_gradient_is_that_of_finite_differences(part: str, tmp_path: Path) -> None:
    model = loaded(tmp_path, **FREE)
    observation, weight = observed(model), model.network.get_submodule(part).weight
    with torch.no_grad():
        choice = model.sample(observation, drawn(model)).choice
    (gradient,) = torch.autograd.grad(model.evaluate(observation, choice)[0].sum(), weight)
    direction, found = gradient / gradient.norm(), []
    with torch.no_grad():
        for distance in (0.01, -0.02):
            weight += distance * direction
            found.append(model.evaluate(observation, choice)[0].sum())
    torch.testing.assert_close((found[0] - found[1]) / 0.02, gradient.norm(), rtol=0.02, atol=0)


def test_smolvla_learns_from_demonstrations(tmp_path: Path) -> None:
    check_learning(loaded(tmp_path))


@pytest.mark.numeric
@pytest.mark.parametrize("copied", [False, True])
def test_a_saved_smolvla_keeps_weights_names_and_files(copied: bool, tmp_path: Path) -> None:
    write(tmp_path / "a")
    before = load_file(tmp_path / "a" / "model.safetensors")
    if copied:
        before[OUTPUT] = before[EMBEDDINGS].clone()
        save_file(before, tmp_path / "a" / "model.safetensors")
    model = load_action_model(tmp_path / "a")
    check_saving(model, tmp_path / "b")
    after = load_file(tmp_path / "b" / "model.safetensors")
    assert {name: one.shape for name, one in before.items()} == {name: one.shape for name, one in after.items()}
    torch.testing.assert_close(after[EMBEDDINGS], before[EMBEDDINGS] + 0.01)
    assert torch.equal(after[OUTPUT], after[EMBEDDINGS] if copied else before[OUTPUT])
    names = {path.name for path in (tmp_path / "a").iterdir()} | {"rlcore_policy.json"}
    assert {path.name for path in (tmp_path / "b").iterdir()} == names
    assert json.loads((tmp_path / "b" / "config.json").read_text()) == json.loads(
        (tmp_path / "a" / "config.json").read_text()
    )


def test_the_published_sizes_give_450_million_weights(tmp_path: Path) -> None:
    sizes = Sizes.model_validate({})
    with torch.device("meta"):
        network = SmolVLANetwork(vlm_config(sizes, tmp_path), sizes, ((), ()))
    # The paper counts 450 million, with the output layer of the language model.
    count = sum(one.numel() for one in network.parameters()) + 49_280 * 960
    assert 445e6 < count < 455e6
    shapes = {name: tuple(one.shape) for name, one in network.state_dict().items()}
    assert shapes["expert.layers.1.self_attn.k_proj.weight"] == (320, 320)
    assert shapes["expert.layers.15.mlp.up_proj.weight"] == (2048, 720)


def test_an_instruction_cannot_contain_special_tokens(tmp_path: Path) -> None:
    model = loaded(tmp_path)
    unknown, cube, end = (tiny_smolvla.WORDS.index(word) for word in ("<unk>", "cube", "\n"))
    assert model.encode_instruction("<image> cube")[:5].tolist() == [unknown, unknown, cube, end, PADDING]
    assert len(model.encode_instruction("cube " * 100)) == model.instruction_length == 48


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("chunk_size", value) for value in ("many", 5.0, True)],
        ("n_obs_steps", 2),
        ("resize_imgs_with_padding", None),
        ("resize_imgs_with_padding", [28.0, 28.0]),
        ("resize_imgs_with_padding", [28, 14]),
        ("resize_imgs_with_padding", [21, 21]),
        ("adapt_to_pi_aloha", True),
        ("num_expert_layers", 2),
        ("expert_width_multiplier", 0.3),
        ("max_action_dim", 1),
        ("normalization_mapping", {"STATE": "SQUARES"}),
        ("input_features", {"observation.state": {"type": "STATE", "shape": [3]}}),
        ("input_features", {"observation.environment_state": {"type": "ENV", "shape": [3]}}),
    ],
)
def test_a_smolvla_with_wrong_values_is_refused(key: str, value: object, tmp_path: Path) -> None:
    write(tmp_path, **{key: value})
    assert str(tmp_path) in str(check_refused(tmp_path).where)


def test_layers_of_the_expert_must_have_the_attention_they_were_made_for(tmp_path: Path) -> None:
    write(tmp_path, "sparse", self_attn_every_n_layers=2)
    with pytest.raises(UserError, match="self_attn_every_n_layers"):
        load_action_model(tmp_path)


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "vlm_config.json"])
@pytest.mark.parametrize("content", [None, b"{", b'{"a": 1}'])
def test_damaged_files_of_smolvla_are_reported(file: str, content: bytes | None, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / file).unlink() if content is None else (tmp_path / file).write_bytes(content)
    fix = check_refused(tmp_path).fix
    assert content is not None or file == "model.safetensors" or "tiny-smolvlm" in str(fix)


@pytest.mark.parametrize(
    "changed",
    [
        {"model_type": "llava"},
        {"scale_factor": 0},
        {"text_config": {**tiny_smolvla.TEXT, "model_type": "gemma"}},
        {"text_config": {**tiny_smolvla.TEXT, "num_hidden_layers": 0}},
        {"text_config": {**tiny_smolvla.TEXT, "num_hidden_layers": 10**9}},
        {"text_config": {**tiny_smolvla.TEXT, "num_key_value_heads": 2}},
        {"vision_config": {**tiny_smolvla.VISION, "patch_size": [7, 7]}},
        {"vision_config": 3},
    ],
)
def test_a_vision_language_model_with_wrong_values_is_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "vlm_config.json").write_text(json.dumps(tiny_smolvla.VLM | changed))
    with pytest.raises(UserError) as caught:
        load_action_model(tmp_path)
    assert "vlm_config.json" in str(caught.value.where)


@pytest.mark.parametrize("damage", ["name", "shape", "nan", "statistics"])
def test_wrong_weights_of_smolvla_are_listed(damage: str, tmp_path: Path) -> None:
    write(tmp_path)
    part = "expert.layers.1.self_attn.k_proj.weight"
    expected = {
        "name": f"missing: {part}",
        "shape": f"{part} [7, 8] instead of [8, 8]",
        "nan": f"NaN or infinity in {part}",
    }
    check_wrong_weights(tmp_path, PROJECTION, damage, expected)


def test_special_tokens_of_pictures_must_be_in_the_tokenizer(tmp_path: Path) -> None:
    write(tmp_path, "special")
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace("<global-img>", "<another>"))
    with pytest.raises(UserError, match="<global-img>"):
        load_action_model(tmp_path)


def test_smolvla_without_a_camera_is_refused(tmp_path: Path) -> None:
    model = loaded(tmp_path)
    observation = observed(model)
    del observation["images/wrist"]
    with pytest.raises(DataError, match="images/wrist"):
        model.mode(observation)
