"""The phases: networks, updates, rewards and outputs, on episodes of the flat arm."""

from __future__ import annotations

import json
import resource
from dataclasses import replace

import numpy as np
import pytest
import torch
from rl_plugin_world_model import checkpoints
from rl_plugin_world_model import rewards as terms
from rl_plugin_world_model.config import ExplorerConfig, NetworkConfig, PhaseConfig
from rl_plugin_world_model.explorer import Acting, ExplorerTraining, RandomActing
from rl_plugin_world_model.flat_arm import FlatArm, FlatArmConfig
from rl_plugin_world_model.journal import NAME, Journal, finite, missing, panels, write_sample
from rl_plugin_world_model.models.frames import PatchCode
from rl_plugin_world_model.models.networks import Explorer, WorldModel, log_probability
from rl_plugin_world_model.notes import turn_notes
from rl_plugin_world_model.records import group_of
from rl_plugin_world_model.rewards import RewardNormaliser
from rl_plugin_world_model.sequences import Interface
from rl_plugin_world_model.world_model import WorldModelTraining, evaluate, predictions
from rlcore.errors import UserError, WriteError
from rlcore.rollouts.records import trajectory_from_json, trajectory_to_json
from rlcore_control.environments import SyncEnvironments
from rlcore_control.episodes import collect
from rlcore_control.videos import write_video
from rlcore_trainer.algorithms.advantages.gae import Gae
from rlcore_trainer.algorithms.losses.clip import clip
from rlcore_trainer.distributed.config import SingleProcessConfig
from rlcore_trainer.distributed.strategies.single import SingleProcess

CPU = torch.device("cpu")
NETWORK = NetworkConfig(channels=8, memory=12, codes=8)
SHORT = FlatArmConfig(max_steps=9)


class Scene:
    """Networks and four episodes of random actions, the second of which is shorter."""

    def __init__(self, network: NetworkConfig = NETWORK) -> None:
        self.vector = SyncEnvironments([lambda: FlatArm(SHORT)] * 4)
        self.interface = Interface(self.vector.observation_space, self.vector.action_space, network)
        torch.manual_seed(0)
        self.model, self.explorer = (kind(network, self.interface.sizes) for kind in (WorldModel, Explorer))
        act = RandomActing(self.interface, 0, 1.0, 1)
        self.episodes = collect(self.vector, [0, 1, 2, 3], act, seed=0, limit=9).episodes
        self.episodes[1] = replace(self.episodes[1].window(0, 5), number=1)
        frames = torch.from_numpy(np.concatenate([one.observations["head_rgb"] for one in self.episodes]))
        self.model.code.fit(frames, (frames[:-1], frames[1:]), seed=0)
        torch.nn.init.normal_(self.model.change.weight, std=0.1)
        self.batch = self.interface.sequences(self.episodes, CPU)


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def test_patches_are_encoded_and_decoded(scene):
    picture = torch.from_numpy(scene.episodes[0].observations["head_rgb"][:1])
    assert scene.model.code.patches(picture).shape == (1, 8, 8, 48)
    exact = PatchCode(NetworkConfig(prediction="latents", codes=48))
    frames = torch.from_numpy(scene.episodes[0].observations["head_rgb"])
    exact.fit(frames, (frames[:-1], frames[1:]), seed=0)
    assert (exact.decode(exact.encode(picture)).int() - picture.int()).abs().max() <= 1


def test_baselines_agree_with_a_slow_loop(scene):
    code = scene.model.code
    tokens = code.encode(torch.from_numpy(scene.episodes[0].observations["head_rgb"][:2]))
    before, after = tokens[:1], tokens[1:]
    expected = []
    for row in range(8):
        for column in range(8):
            new, share = int(after[0, row, column]), code.marginal_hwK[row, column]
            same = float(before[0, row, column] == new)
            expected.append(-np.log(float(code.kept) * same + (1 - float(code.kept)) * float(share[new])))
    assert float(code.copy_error(before, after)) == pytest.approx(np.mean(expected), rel=1e-5)


def test_before_training_the_prediction_is_a_copy(scene):
    fresh = WorldModel(NETWORK, scene.interface.sizes)
    fresh.code = scene.model.code
    found = evaluate(fresh, NETWORK, [scene.batch], SingleProcess(SingleProcessConfig()))
    assert found["loss"] == pytest.approx(found["copy"], rel=1e-5)


def test_the_current_action_changes_the_prediction(scene):
    other = replace(scene.batch, action_BTA=-scene.batch.action_BTA)
    one, two = (predictions(scene.model, NETWORK, batch).error_BT for batch in (scene.batch, other))
    assert (one - two)[scene.batch.valid_BT].abs().min() > 0


def test_predictions_of_an_episode_do_not_depend_on_the_others(scene):
    together = predictions(scene.model, NETWORK, scene.batch)
    for i, episode in enumerate(scene.episodes):
        alone = predictions(scene.model, NETWORK, scene.interface.sequences([episode], CPU))
        length = len(episode)
        assert torch.allclose(together.error_BT[i, :length], alone.error_BT[0], atol=1e-5)
        assert torch.allclose(together.memory[i, : length + 1], alone.memory[0], atol=1e-5)
        assert not together.error_BT[i, length:].any()


def test_the_future_does_not_change_the_memory(scene):
    changed = scene.batch.pictures["head_rgb"].clone()
    changed[:, 5:] = 0
    other = replace(scene.batch, pictures=scene.batch.pictures | {"head_rgb": changed})
    one, two = (predictions(scene.model, NETWORK, batch).memory for batch in (scene.batch, other))
    assert torch.equal(one[:, :5], two[:, :5])
    assert not torch.equal(one[:, 5:], two[:, 5:])


def test_parts_carry_the_memory_and_cut_the_gradient(scene):
    batch, model = scene.batch, scene.model
    whole = predictions(model, NETWORK, batch).error_BT
    config = PhaseConfig(bptt_length=4, learning_rate=1e-12, weight_decay=0)
    training = WorldModelTraining(model, NETWORK, config, SingleProcess(SingleProcessConfig()))
    found = training.train(batch, 1e-12)
    assert found["updates"] == 3  # 9 steps in parts of 4, one update each
    assert found["loss"] == pytest.approx(float(whole.sum() / batch.valid_BT.sum()), rel=1e-4)
    memory = model.start(4, CPU).requires_grad_()
    training._part(batch, memory, 0, batch.valid_BT[:, :4])[0].backward()
    assert memory.grad is None


def test_training_lowers_the_loss_below_both_baselines():
    scene = Scene()
    config = PhaseConfig(bptt_length=5)
    strategy = SingleProcess(SingleProcessConfig())
    training = WorldModelTraining(scene.model, NETWORK, config, strategy)
    for _ in range(40):
        training.train(scene.batch, 5e-3)
    found = evaluate(scene.model, NETWORK, [scene.batch], strategy)
    assert found["loss"] < 0.9 * found["copy"]
    assert found["loss"] < 0.9 * found["marginal"]


# The explorer


def explored(scene: Scene):
    acting = Acting(scene.explorer, NETWORK, scene.interface, seed=3)
    episodes = collect(scene.vector, [4, 5, 6, 7], acting, seed=0, limit=9).episodes
    return episodes, scene.interface.sequences(episodes, CPU)


def trainer_of(scene: Scene, **settings) -> ExplorerTraining:
    advantage, loss = Gae(Gae.Config(gamma=0.9, gae_lambda=0.8)), clip.configured(clip.Config())
    config, strategy = ExplorerConfig(**settings), SingleProcess(SingleProcessConfig())
    return ExplorerTraining(scene.explorer, NETWORK, config, strategy, advantage, loss, 0.9)


def test_log_probabilities_are_those_of_the_actions_that_were_taken(scene):
    episodes, batch = explored(scene)
    training = trainer_of(scene)
    memory = training.memory(batch)[:, :-1]
    logprobs = log_probability(batch.stored["sample"], *scene.explorer.policy(memory))
    assert torch.allclose(logprobs, batch.stored["logprob"], atol=1e-4)
    assert torch.allclose(scene.explorer.value(memory)[..., 0], batch.stored["value"], atol=1e-5)
    assert np.allclose(np.tanh(batch.stored["sample"][0].numpy()), episodes[0].actions, atol=1e-5)


def test_the_log_density_integrates_to_one():
    action = torch.linspace(-0.9999, 0.9999, 20001, dtype=torch.float64)
    mean, std = torch.tensor([0.3], dtype=torch.float64), torch.tensor([0.7], dtype=torch.float64)
    density = log_probability(torch.atanh(action)[:, None], mean, std).exp()
    assert float(torch.trapezoid(density, action)) == pytest.approx(1, abs=1e-3)


def test_every_parameter_of_the_explorer_is_trained():
    scene = Scene()
    _, batch = explored(scene)
    before = {name: one.detach().clone() for name, one in scene.explorer.named_parameters()}
    found = trainer_of(scene, epochs=2).train(batch, [4, 5, 6, 7], torch.randn(4, 9), None, 1e-2)
    unchanged = [name for name, one in scene.explorer.named_parameters() if torch.equal(one, before[name])]
    assert not unchanged
    assert found["ratio/max"] > 1


def test_truncated_episodes_bootstrap_and_terminated_ones_do_not(scene):
    _, batch = explored(scene)
    training = trainer_of(scene)
    rewards = torch.ones(4, 9)
    final = scene.explorer.value(training.memory(batch)[:, -1])[:, 0].detach()
    _, truncated, _ = training._advantages(batch, [4, 5, 6, 7], rewards)
    ended = replace(batch, terminated_B=torch.ones(4, dtype=torch.bool))
    _, terminated, _ = training._advantages(ended, [4, 5, 6, 7], rewards)
    assert torch.allclose(terminated[:, -1], torch.ones(4), atol=1e-5)
    assert torch.allclose(truncated[:, -1], 1 + 0.9 * final, atol=1e-5)


def test_rewarded_actions_become_more_likely():
    scene = Scene()
    training = trainer_of(scene, entropy_weight=0.0, distillation_weight=0.0, epochs=2)
    means = []
    for number in range(0, 60, 4):
        acting = Acting(scene.explorer, NETWORK, scene.interface, seed=number)
        numbers = list(range(number, number + 4))
        episodes = collect(scene.vector, numbers, acting, seed=0, limit=9).episodes
        batch = scene.interface.sequences(episodes, CPU)
        means.append(float(batch.action_BTA[..., 0].mean()))
        training.train(batch, numbers, batch.action_BTA[..., 0], None, 1e-2)
    assert np.mean(means[-3:]) > np.mean(means[:3]) + 0.3


def test_terms_have_the_values_of_their_formulas():
    zeros = torch.zeros(1, 2)
    memory = torch.tensor([[[0.0], [1.0], [3.0]]])
    found = terms.Round(
        error_BT=torch.tensor([[2.0, 3.0]]),
        later_error_BT=torch.tensor([[1.5, 1.0]]),
        uncertainty_BT=torch.tensor([[0.5, 0.6]]),
        memory=memory,
        teacher_memory=torch.tensor([[[2.0], [2.0], [2.0]]]),
        action_BTA=torch.tensor([[[1.0, -1.0], [0.0, 0.5]]]),
        success_BT=zeros + torch.tensor([0.0, 1.0]),
    )
    assert terms.wm_error(found).tolist() == [[2, 3]]
    assert terms.learning_progress(found).tolist() == [[0.5, 2]]
    assert terms.memory_divergence(found).tolist() == [[1, 0]]
    assert terms.action_cost(found).tolist() == [[-1, -0.25]]
    assert terms.task_success(found).tolist() == [[0, 1]]


def test_the_scale_of_rewards_is_that_of_all_rounds():
    strategy, valid = SingleProcess(SingleProcessConfig()), torch.ones(1, 50, dtype=torch.bool)
    normaliser, rounds = RewardNormaliser(10.0), [torch.randn(1, 50) * 3 + 1 for _ in range(4)]
    for rewards in rounds:
        scaled = normaliser(rewards, valid, strategy)
    assert torch.allclose(scaled, rounds[-1] / torch.cat(rounds).std(correction=0), atol=1e-4)
    other = RewardNormaliser(10.0)
    other.load_state_dict(normaliser.state_dict())
    assert other.state_dict() == normaliser.state_dict()


# Outputs


def test_a_failed_prediction_is_an_empty_panel_and_never_the_truth():
    real = np.tile(np.array([200, 10, 90], np.uint8), (32, 32, 1))
    assert finite(real, float("nan")) is None
    shown = panels(real, real, None)
    panel = shown[:, -160:]
    assert np.array_equal(panel, missing(160, 160))
    assert not (panel == real[0, 0]).all(-1).any()


def test_stored_episodes_have_predictions_beside_the_frames_that_they_predict(scene):
    episode = scene.episodes[1]
    found = predictions(scene.model, NETWORK, scene.batch, pictures=True)
    pictures = [finite(found.pictures[1, t].numpy(), 0.0) for t in range(len(episode))]
    errors = found.error_BT[1, : len(episode)].tolist()
    weighted = {"wm_error": (2.0, errors), "task_success": (0.5, [0.0] * len(episode))}
    group = group_of(episode, target="head_rgb", predicted=[*pictures[:-1], None], errors=errors, terms=weighted)
    (one,) = group.trajectories
    assert trajectory_from_json(trajectory_to_json(one)) == one
    arrays = {name: np.asarray(array) for name, array in one.segments[0].arrays.items()}
    assert np.array_equal(arrays["observation/head_rgb"], episode.observations["head_rgb"])
    assert np.array_equal(arrays["predicted/head_rgb"][1:-1], np.stack(pictures[:-1]))
    assert np.array_equal(arrays["predicted/head_rgb"][0], missing(32, 32))  # nothing predicts the first frame
    assert np.array_equal(arrays["predicted/head_rgb"][-1], missing(32, 32))
    assert np.array_equal(arrays["action"][:-1], episode.actions)
    assert one.reward == pytest.approx(2 * sum(errors))
    notes = turn_notes(group.task, one)
    assert len(notes) == len(episode)
    (table,) = notes[3].tables
    assert table.rows[0] == ("wm_error", 2.0, pytest.approx(errors[3]), pytest.approx(2 * errors[3]))
    without = group_of(episode, target="head_rgb", predicted=pictures, errors=errors, terms={})
    assert without.trajectories[0].reward == episode.rewards_T.sum()
    assert turn_notes(without.task, without.trajectories[0]) is None


def test_large_pictures_of_stored_episodes_are_thinned_out(scene):
    episode = scene.episodes[0]
    large = {
        name: rows.repeat(10, 1).repeat(10, 2) if rows.ndim == 4 else rows
        for name, rows in episode.observations.items()
    }
    episode = replace(episode, observations=large)
    group = group_of(episode, target="head_rgb", predicted=[None] * 9, errors=[0.0] * 9, terms={})
    shapes = {name: array.shape[1:] for name, array in group.trajectories[0].segments[0].arrays.items()}
    assert shapes["observation/head_rgb"] == shapes["predicted/head_rgb"] == (107, 107, 3)
    assert shapes["observation/state"] == episode.observations["state"].shape[1:]


def test_a_full_disk_while_a_video_is_written_is_told(tmp_path):
    frames = [np.random.default_rng(i).integers(0, 255, (64, 70, 3), np.uint8) for i in range(20)]
    write_video(tmp_path / "good.mp4", frames, rate=10)
    assert (tmp_path / "good.mp4").stat().st_size > 10_000
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(WriteError, match="video cannot be written") as caught:
            write_video(tmp_path / "bad.mp4", frames, rate=10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "MB are free" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["good.mp4"]


def test_pictures_are_written_as_png(tmp_path):
    from PIL import Image

    black = np.zeros((8, 12, 3), np.uint8)
    write_sample(tmp_path / "samples/episode_000010.png", [panels(black, black, black)] * 2)
    with Image.open(tmp_path / "samples/episode_000010.png") as image:
        pixels = np.asarray(image)
    titles, rows = pixels[:16], pixels[16:]
    width = 12 * 20
    assert rows.shape == (2 * 160, 3 * width + 2 * 4, 3)
    for column in range(3):  # a title above each panel
        start = column * (width + 4)
        assert (titles[:, start : start + 80] < 128).any()


def test_a_resumed_run_drops_the_lines_that_it_repeats(tmp_path):
    journal = Journal(tmp_path, print, console_level="CRITICAL", file_level="CRITICAL")
    for episode in (4, 8, 12):
        journal.write({"episode": episode})
    with (tmp_path / NAME).open("a") as file:
        file.write('{"episode": 1')
    journal.rewind(8)
    assert [json.loads(line)["episode"] for line in (tmp_path / NAME).read_text().splitlines()] == [4, 8]


@pytest.mark.parametrize(("console", "file"), [("INFO", "WARNING"), ("WARNING", "INFO")])
def test_levels_of_console_and_file_are_honoured(tmp_path, console, file):
    said: list[str] = []
    journal = Journal(tmp_path, said.append, console_level=console, file_level=file)
    for level in (10, 20, 30):
        journal.tell(level, f"level {level}")
    levels = {"INFO": [20, 30], "WARNING": [30]}
    assert said == [f"level {level}" for level in levels[console]]
    assert (tmp_path / "phase.log").read_text().count("level") == len(levels[file])


def test_other_processes_print_only_warnings_to_stderr(capsys):
    journal = Journal(None, print, console_level="DEBUG", file_level="DEBUG", process=1)
    for level in (10, 20, 30, 40):
        journal.tell(level, f"level {level}")
    shown = capsys.readouterr()
    assert shown.err.splitlines() == ["process 1: level 30", "process 1: level 40"]
    assert shown.out == ""


def test_checkpoints_are_atomic_linked_and_strict(tmp_path, scene):
    contents = {"world_model": scene.model.state_dict(), "network": {}, "sizes": [2, 2], "phase": "teacher"}
    for step in (10, 20, 30):
        checkpoints.save(tmp_path, step, contents, {"episode": step}, keep=2)
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-20", "checkpoint-30"]
    folder = tmp_path / "checkpoint-30"
    model = checkpoints.read(folder, checkpoints.MODEL, where="--resume", device=CPU)
    checkpoints.restore(scene.model, model["world_model"], what="world model", where="here")
    wrong = {("x" + name if "change" in name else name): one for name, one in model["world_model"].items()}
    with pytest.raises(UserError, match="2 missing, such as change") as caught:
        checkpoints.restore(scene.model, wrong, what="world model", where="here")
    assert "2 unexpected" in str(caught.value)
    (folder / "model.pt").write_bytes(b"damaged")
    with pytest.raises(UserError, match="damaged"):
        checkpoints.read(folder, checkpoints.MODEL, where="--resume", device=CPU)
    with pytest.raises(UserError, match="no buffers, optimiser"):
        checkpoints.read(folder.parent / "checkpoint-20", checkpoints.STATE, where="--resume", device=CPU)
    with pytest.raises(UserError, match="no such folder"):
        checkpoints.read(tmp_path / "checkpoint-99", checkpoints.MODEL, where="--resume", device=CPU)


def test_environments_that_the_phases_cannot_use_are_refused(scene):
    spaces = (scene.vector.observation_space, scene.vector.action_space)
    with pytest.raises(UserError, match="front_rgb"):
        Interface(*spaces, NETWORK.model_copy(update={"cameras": ["front_rgb"]}))
    import gymnasium

    with pytest.raises(UserError, match="limits"):
        Interface(spaces[0], gymnasium.spaces.Box(-np.inf, np.inf, (2,)), NETWORK)
    odd = SyncEnvironments([lambda: FlatArm(FlatArmConfig(size=33))])
    with pytest.raises(UserError, match="divides"):
        Interface(odd.observation_space, odd.action_space, NETWORK)
