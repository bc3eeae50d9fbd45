"""The compact vision-language-action model: decisions, training, normalisation and its folder."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import ConfigError, DataError, UserError
from rlcore.types import LossMask, NumberArray, TokenIds
from rlcore_control.building import build
from rlcore_control.models.action_model import ActionModel, NoiseShapes
from rlcore_control.models.config import TinyVLAConfig
from rlcore_control.models.instructions import hash_words
from rlcore_control.models.loading import load_action_model
from rlcore_control.models.normalisation import measure
from rlcore_control.models.spaces import Spaces
from rlcore_control.models.vla import VisionLanguageAction, create
from rlcore_control.policy import ACTION, OBSERVATION, ControlPolicy
from rlcore_trainer.batching.packing import TrainingSequence, divide
from safetensors.torch import load_file, save_file
from torch import Tensor

STATE_ONLY = Spaces(state=5, low_A=(-2.0, 0.0), high_A=(2.0, 1.0))
PICTURES = Spaces(state=5, cameras={"head": (48, 64), "wrist": (32, 32)}, low_A=(-2.0, 0.0), high_A=(2.0, 1.0))
HEADS: list[dict[str, Any]] = [
    {"head": "gaussian"},
    {"head": "gaussian", "gaussian": {"bounds": "tanh"}},
    {"head": "tokens", "tokens": {"bins": 9}},
    {"head": "flow"},
    {"head": "flow", "flow": {"noise": "learned"}},
]
BATCH = 6


def small(spaces: Spaces, seed: int = 0, **options: Any) -> VisionLanguageAction:
    return create(spaces, TinyVLAConfig(chunk=3, width=32, **options), seed)


def observed(model: ActionModel, batch: int = BATCH, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    observation = {"state": torch.randn(batch, model.spaces.state, generator=generator)}
    for name, (height, width) in model.spaces.cameras.items():
        pixels = torch.randint(0, 256, (batch, height, width, 3), generator=generator)
        observation[f"images/{name}"] = pixels.to(torch.uint8)
    if model.instruction_length:
        observation["instruction"] = model.encode_instruction("stack the red block").expand(batch, -1)
    return observation


def drawn(shapes: NoiseShapes, batch: int = BATCH, seed: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    draw = {"normal": torch.randn, "uniform": torch.rand}
    return {name: draw[kind](batch, *shape, generator=generator) for name, (shape, kind) in shapes.items()}


@pytest.mark.numeric
@pytest.mark.parametrize("options", HEADS, ids=str)
@pytest.mark.parametrize("spaces", [STATE_ONLY, PICTURES], ids=["state", "pictures"])
def test_sampling_and_evaluation_give_the_same_log_probability(spaces: Spaces, options: dict[str, Any]) -> None:
    model = small(spaces, instruction_length=4, **options)
    observation = observed(model)
    decision = model.sample(observation, drawn(model.noise_shapes()))
    assert decision.action_BHA.shape == (BATCH, 3, 2)
    low_A, high_A = torch.tensor(spaces.low_A), torch.tensor(spaces.high_A)
    assert bool(((decision.action_BHA >= low_A) & (decision.action_BHA <= high_A)).all())
    # One sequence at a time: the batch of the rollout is not that of the update.
    for b in range(BATCH):
        alone = ({key: value[b : b + 1] for key, value in part.items()} for part in (observation, decision.choice))
        logprob_B, entropy_B, features_BD = model.evaluate(*alone)
        torch.testing.assert_close(logprob_B[0], decision.logprob_B[b], atol=1e-5, rtol=1e-5)
        assert features_BD.shape == (1, model.features)
        assert entropy_B.shape == (1,)


@pytest.mark.parametrize("options", HEADS, ids=str)
def test_a_micro_batch_without_a_decision_adds_zeros_to_the_gradient(options: dict[str, Any]) -> None:
    """A process without work computes one, so that all make the same collective operations."""
    model = small(PICTURES, instruction_length=4, **options)
    observation = observed(model, 1)
    choice = model.sample(observation, drawn(model.noise_shapes(), 1)).choice
    rows = {OBSERVATION + name: tensor for name, tensor in observation.items()}
    rows |= {ACTION + name: tensor.detach() for name, tensor in choice.items()}
    arrays = {name: NumberArray.of(tensor.numpy()) for name, tensor in rows.items()}
    decision = TrainingSequence(token_ids=TokenIds([0]), loss_mask=LossMask([True]), arrays=arrays)
    found = []
    for share in divide([decision], 100, 2):
        (batch,) = share.micro_batches(torch.device("cpu"))
        ControlPolicy(model).loss(batch, lambda _, logprobs_C, __: (logprobs_C.sum(), {})).loss.backward()
        found.append({name: one.grad for name, one in model.named_parameters() if one.grad is not None})
        model.zero_grad()
    assert found[0].keys() == found[1].keys()
    assert any(bool(one.any()) for one in found[0].values())
    assert not any(bool(one.any()) for one in found[1].values())


@pytest.mark.parametrize("options", HEADS, ids=str)
def test_the_folder_gives_the_same_decisions(options: dict[str, Any], tmp_path: Path) -> None:
    model = small(PICTURES, instruction_length=4, **options)
    model.use_statistics(measure([(torch.randn(9, 5), torch.rand(9, 2))]))
    model.save(tmp_path)
    loaded = load_action_model(tmp_path)
    noise = drawn(model.noise_shapes())
    assert loaded.spaces == model.spaces
    assert torch.equal(
        loaded.sample(observed(model), noise).action_BHA, model.sample(observed(model), noise).action_BHA
    )
    assert torch.equal(loaded.mode(observed(model)), model.mode(observed(model)))


@pytest.mark.parametrize(("head", "layers"), [("gaussian", 1), ("tokens", 0)])
def test_cloning_learns_from_state_picture_and_instruction(head: Any, layers: int) -> None:
    spaces = Spaces(state=2, cameras={"wrist": (16, 16)}, low_A=(-2.0, 0.0, 0.0), high_A=(2.0, 1.0, 1.0))
    options = TinyVLAConfig(head=head, width=32, layers=layers, instruction_length=2, image_size=16, image_channels=4)
    model = create(spaces, options, 0)
    # The values of the expert's action follow the state, the colour of the picture and the instruction.
    generator = torch.Generator().manual_seed(0)
    state_BS = torch.randn(64, 2, generator=generator)
    red_B, side_B = torch.randint(0, 2, (2, 64), generator=generator)
    picture = (red_B * 255)[:, None, None, None].expand(-1, 16, 16, 3).to(torch.uint8)
    words_BL = torch.stack([model.encode_instruction(text) for text in ("push left", "push right")])[side_B]
    observation = {"state": state_BS, "images/wrist": picture, "instruction": words_BL}
    parts = [state_BS[:, 0].sign(), 0.25 + 0.5 * red_B, 0.25 + 0.5 * side_B]
    action_BHA = torch.stack(parts, 1)[:, None]
    valid_BH = torch.ones(64, 1, dtype=torch.bool)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    before_A = (model.mode(observation) - action_BHA).abs().mean((0, 1))
    for _ in range(60):
        optimiser.zero_grad()
        model.cloning_loss(observation, action_BHA, valid_BH).mean().backward()
        optimiser.step()
    after_A = (model.mode(observation) - action_BHA).abs().mean((0, 1))
    assert bool((after_A < 0.3 * before_A).all())


def test_actions_after_the_end_of_a_demonstration_do_not_count() -> None:
    model = small(STATE_ONLY)
    observation, valid_BH = observed(model), torch.tensor([[True, False, False]] * BATCH)
    action_BHA = torch.rand(BATCH, 3, 2)
    changed_BHA = action_BHA.clone()
    changed_BHA[:, 1:] = 99.0
    assert torch.equal(
        model.cloning_loss(observation, action_BHA, valid_BH), model.cloning_loss(observation, changed_BHA, valid_BH)
    )
    assert bool((model.cloning_loss(observation, action_BHA, valid_BH & False) == 0).all())


@pytest.mark.numeric
def test_statistics_of_several_demonstrations_are_those_of_all_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    episodes = [
        (1000 + torch.randn(rows, 3, generator=generator), torch.randn(rows, 2, generator=generator))
        for rows in (1, 20, 7)
    ]
    statistics = measure(episodes)
    state_NS, action_NA = (torch.cat(parts) for parts in zip(*episodes, strict=True))
    torch.testing.assert_close(statistics.state_mean_S, state_NS.double().mean(0).float())
    torch.testing.assert_close(statistics.state_std_S, state_NS.double().std(0, correction=0).float())
    assert torch.equal(statistics.action_low_A, action_NA.amin(0))
    assert torch.equal(statistics.action_high_A, action_NA.amax(0))


def test_a_value_that_hardly_varies_is_not_amplified() -> None:
    model = small(STATE_ONLY)
    state_NS = torch.randn(50, 5) * 0.2
    state_NS[:, 1] *= 1e-3  # an angle that the demonstrations hold, with the noise of the simulator
    model.use_statistics(measure([(state_NS, torch.rand(50, 2))]))
    deviation = torch.zeros(1, 5)
    deviation[0, 1] = 0.005
    normalised = model.normalisation.state(state_NS.mean(0) + deviation)
    assert float(normalised[0, 1]) == pytest.approx(0.05, rel=0.01)
    assert float(model.normalisation.state(state_NS).std(0)[0]) == pytest.approx(1, rel=0.05)


@pytest.mark.numeric
def test_a_constant_dimension_of_demonstrations_stays_usable() -> None:
    model = small(STATE_ONLY)
    state_NS, action_NA = torch.randn(50, 5), torch.rand(50, 2)
    state_NS[:, 1], action_NA[:, 1] = 3.0, 0.5
    model.use_statistics(measure([(state_NS, action_NA)]))
    observation = {"state": state_NS[:4].clone()}
    observation["state"][:, 1] += 1e-6
    assert bool(model.mode(observation).isfinite().all())
    assert float(model.normalisation.state(observation["state"])[0, 1].abs()) < 1e-3
    spread = model.normalisation.action_in_units(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
    torch.testing.assert_close(spread[:, 1], torch.tensor([0.4, 0.6]))


@pytest.mark.parametrize(
    "episodes",
    [
        [],
        [(torch.zeros(3, 2), torch.zeros(4, 2))],
        [(torch.zeros(0, 2), torch.zeros(0, 2))],
        [(torch.zeros(3, 2), torch.full((3, 2), math.nan))],
        [(torch.zeros(3, 2), torch.zeros(3, 2)), (torch.zeros(3, 1), torch.zeros(3, 2))],
    ],
    ids=["none", "lengths differ", "empty", "nan", "sizes differ"],
)
def test_unusable_demonstrations_are_refused(episodes: list[tuple[Tensor, Tensor]]) -> None:
    with pytest.raises(DataError):
        measure(episodes)


def test_statistics_of_other_sizes_are_refused() -> None:
    with pytest.raises(DataError, match="sizes of the policy"):
        small(STATE_ONLY).use_statistics(measure([(torch.randn(9, 4), torch.rand(9, 2))]))


def test_an_observation_without_an_input_is_refused() -> None:
    model = small(PICTURES, instruction_length=4)
    observation = observed(model)
    del observation["images/wrist"]
    with pytest.raises(DataError, match="images/wrist"):
        model.mode(observation)
    with pytest.raises(DataError, match="state of size 5"):
        model.mode(observed(model) | {"state": torch.zeros(BATCH, 4)})


def test_weights_of_another_policy_are_reported(tmp_path: Path) -> None:
    small(STATE_ONLY).save(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["stranger"] = weights.pop("head.log_std_HA")
    weights["encoder.summary"] = weights["encoder.summary"][:-1].clone()
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(UserError) as caught:
        load_action_model(tmp_path)
    found = str(caught.value)
    assert "missing: head.log_std_HA" in found
    assert "unexpected: stranger" in found
    assert "encoder.summary [31] instead of [32]" in found


@pytest.mark.parametrize("damage", ["no weights", "cut weights", "nan", "no config", "other version", "unknown option"])
def test_a_damaged_folder_is_refused(damage: str, tmp_path: Path) -> None:
    small(STATE_ONLY).save(tmp_path)
    config, weights = tmp_path / "config.json", tmp_path / "model.safetensors"
    described = json.loads(config.read_text())
    if damage == "no weights":
        weights.unlink()
    elif damage == "cut weights":
        weights.write_bytes(weights.read_bytes()[:-50])
    elif damage == "nan":
        tensors = load_file(weights)
        tensors["encoder.summary"][0] = math.nan
        save_file(tensors, weights)
    elif damage == "no config":
        config.unlink()
    elif damage == "other version":
        config.write_text(json.dumps(described | {"version": 99}))
    else:
        config.write_text(json.dumps(described | {"options": described["options"] | {"depth": 3}}))
    with pytest.raises(UserError):
        load_action_model(tmp_path)


def test_the_builder_writes_the_policy_of_the_environment(tmp_path: Path) -> None:
    config = TinyVLAConfig(chunk=2, cameras=["wrist"])
    build(tmp_path / "a", [], 3, config, spaces=PICTURES)
    build(tmp_path / "b", [], 3, config, spaces=PICTURES)
    build(tmp_path / "c", [], 4, config, spaces=PICTURES)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c
    assert set(load_action_model(tmp_path / "a").spaces.cameras) == {"wrist"}


def test_a_builder_without_what_it_needs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        build(tmp_path / "a", [], 0, TinyVLAConfig())
    with pytest.raises(DataError, match="camera front"):
        build(tmp_path / "a", [], 0, TinyVLAConfig(cameras=["front"]), spaces=PICTURES)
    with pytest.raises(ConfigError, match="parameters"):
        build(tmp_path / "a", [], 0, TinyVLAConfig(width=2**15), spaces=PICTURES)
    with pytest.raises(ConfigError, match="finite limits"):
        Spaces(state=3, low_A=(-math.inf,), high_A=(math.inf,))


def test_words_have_equal_tokens_whatever_their_case_and_place() -> None:
    first = hash_words("Stack the RED block!", 6, 1000)
    assert first.tolist() == hash_words("stack the red block", 6, 1000).tolist()
    assert first[4:].tolist() == [0, 0]
    assert bool((first[:4] > 0).all())
    assert hash_words("block, red", 2, 1000).tolist() == [first[3].item(), first[2].item()]


def test_a_batch_of_64_states_is_decided_quickly() -> None:
    model = create(STATE_ONLY, TinyVLAConfig(chunk=4), 0)
    observation, noise = observed(model, 64), drawn(model.noise_shapes(), 64)
    best = math.inf
    with torch.inference_mode():
        for _ in range(30):
            start = time.perf_counter()
            model.sample(observation, noise)
            best = min(best, time.perf_counter() - start)
    assert best < 0.004  # alone on a core: 0.8 ms
