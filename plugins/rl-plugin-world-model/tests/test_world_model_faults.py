"""Faults of published programs that no other test of the phases would find; see faults.md."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rl_plugin_world_model.config import NetworkConfig, PhaseConfig
from rl_plugin_world_model.explorer import RandomActing
from rl_plugin_world_model.flat_arm import FlatArm, FlatArmConfig
from rl_plugin_world_model.models.networks import WorldModel
from rl_plugin_world_model.sequences import Interface
from rl_plugin_world_model.world_model import WorldModelTraining, predictions
from rlcore_control.episodes import collect
from rlcore_control.vector import SyncEnvironments
from rlcore_trainer.distributed.config import SingleProcessConfig
from rlcore_trainer.distributed.strategies.single import SingleProcess

NETWORK = NetworkConfig(channels=8, memory=12, codes=8)
STEPS = 9


class Scene:
    """A world model that is not trained, and two episodes of random actions."""

    def __init__(self) -> None:
        vector = SyncEnvironments([lambda: FlatArm(FlatArmConfig(max_steps=STEPS))] * 2)
        interface = Interface(vector.observation_space, vector.action_space, NETWORK)
        torch.manual_seed(0)
        self.model = WorldModel(NETWORK, interface.sizes)
        episodes = collect(vector, [0, 1], RandomActing(interface, 0, 1.0, 1), seed=0, limit=STEPS).episodes
        self.batch = interface.sequences(episodes, torch.device("cpu"))
        frames = self.batch.pictures["head_rgb"][0]
        self.model.code.fit(frames, (frames[:-1], frames[1:]), seed=0)
        torch.nn.init.normal_(self.model.change.weight, std=0.1)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.long
def test_a_run_writes_into_its_folder_alone(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work dir"
    home.mkdir()
    work.mkdir()
    command = [sys.executable, "-m", "rlcore", "run", "-p", "world-model", "-r", "teacher", "runs=my runs", "name=one"]
    short = ["trainer.episodes=4", "trainer.num_envs=2", "trainer.steps_per_episode=3", "model.builder.channels=8"]
    own = {"HOME": str(home), "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "HF_", "TORCH"))}
    subprocess.run([*command, *short], cwd=work, env=environment | own, check=True, timeout=300, capture_output=True)
    assert [path.name for path in home.iterdir()] == []
    assert [str(path.relative_to(work)) for path in sorted(work.rglob("*"))][:2] == ["my runs", "my runs/one"]
    assert [path.name for path in (work / "my runs").iterdir()] == ["one"]


def test_training_and_prediction_set_the_mode_of_the_networks(scene: Scene) -> None:
    modes: list[bool] = []
    scene.model.cell.register_forward_hook(lambda module, *_: modes.append(module.training))
    training = WorldModelTraining(
        scene.model, NETWORK, PhaseConfig(bptt_length=STEPS), SingleProcess(SingleProcessConfig())
    )
    training.train(scene.batch, 1e-3)
    assert modes == [True] * STEPS
    predictions(scene.model, NETWORK, scene.batch, pictures=True)
    assert modes[STEPS:] == [False] * (STEPS + 1)
    training.train(scene.batch, 1e-3)
    assert modes[2 * STEPS + 1 :] == [True] * STEPS


def test_the_memory_is_updated_once_for_each_frame(scene: Scene) -> None:
    updates: list[int] = []
    scene.model.cell.register_forward_hook(lambda *_: updates.append(1))
    predictions(scene.model, NETWORK, scene.batch)
    assert len(updates) == STEPS + 1


def test_an_error_is_that_of_its_own_action_and_of_the_next_frame(scene: Scene) -> None:
    before = predictions(scene.model, NETWORK, scene.batch).error_BT
    frames = scene.batch.pictures["head_rgb"].clone()
    frames[:, 6] = 255 - frames[:, 6]
    other = replace(scene.batch, pictures=scene.batch.pictures | {"head_rgb": frames})
    changed = predictions(scene.model, NETWORK, other).error_BT
    assert torch.equal(changed[:, :5], before[:, :5])
    assert (changed[:, 5] != before[:, 5]).all()  # frame 6 is what the action of step 5 leads to
    action = scene.batch.action_BTA.clone()
    action[:, 5] = -action[:, 5]
    changed = predictions(scene.model, NETWORK, replace(scene.batch, action_BTA=action)).error_BT
    same = [bool(torch.equal(changed[:, t], before[:, t])) for t in range(STEPS)]
    assert same == [t != 5 for t in range(STEPS)]  # later memories read `previous`, which is not changed here
