"""Runs that start from a published policy."""

from __future__ import annotations

import json
import os
from pathlib import Path

import point_control
import pytest
import tiny_act
import tiny_pi0
import tiny_smolvla
import torch
from finished_runs import succeeded
from preloaded import rlcore_command
from rlcore_control.models.loading import load_action_model
from safetensors.torch import load_file
from torch import Tensor

SEEN_POINT = f"""
[model]
device = "cpu"
[environment]
id = "{point_control.__file__}:SeenPoint"
[data]
id = "{point_control.__file__}:SeenPointTasks"
[[reward]]
id = "control-return"
[sampler]
id = "control"
[rollout]
group_size = 2
[trainer]
tasks_per_step = 2
steps = 1
[algorithm]
turn_rewards = "only"
[algorithm.advantage]
id = "gae"
[critic]
model = "copy"
[warmup]
steps = 1
[evaluation]
every = 1
tasks = 2
"""
TWO_ARMS = """
observers = ["robotwin"]
[model]
path = "act"
device = "cpu"
[environment]
id = "robotwin"
task = "reach"
control = "qpos"
state = "robot"
[data]
train = 2
evaluation = 2
[[reward]]
id = "control-success"
[sampler]
id = "control"
environments = 2
[rollout]
group_size = 2
[trainer]
tasks_per_step = 1
steps = 1
[warmup]
steps = 1
episodes = 1
[evaluation]
every = 1
"""


@pytest.mark.long
def test_pi0_is_cloned_trained_and_evaluated(tmp_path: Path) -> None:
    settings = {"state": 1, "cameras": ["front"], "actions": 1, "n_action_steps": 3}
    tiny_pi0.write_transformers(tmp_path / "pi0", settings=settings)
    (tmp_path / "run.toml").write_text(SEEN_POINT, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = ("run", "-c", "run.toml", "name=run", "model.path=pi0")
    done = succeeded(rlcore_command(words, tmp_path, environment=environment))
    run = tmp_path / "runs" / "run"
    trained = load_action_model(run / "checkpoints" / "last" / "model")
    before = load_action_model(tmp_path / "pi0").state_dict()
    changed = {name for name, one in trained.state_dict().items() if not bool((one == before[name]).all())}
    assert any("vision_tower" in name for name in changed)
    assert any("dit" in name for name in changed)
    saved = json.loads((run / "checkpoints" / "last" / "model" / "rlcore_policy.json").read_text(encoding="utf-8"))
    assert saved["normalisation"]["action"]["spread"][0] > 0
    done = succeeded(rlcore_command(("eval", "runs/run", "--json"), tmp_path, environment=environment))
    assert json.loads(done.stdout)["reward"] < 0


@pytest.mark.long
def test_smolvla_is_cloned_and_trained_and_resumes_exactly(tmp_path: Path) -> None:
    tiny_smolvla.write(tmp_path / "smolvla", state=1, actions=1, cameras={"front": (20, 24)})
    (tmp_path / "run.toml").write_text(SEEN_POINT, encoding="utf-8")

    def weights(name: str, *words: str) -> dict[str, Tensor]:
        succeeded(rlcore_command(("run", *words), tmp_path, environment={**os.environ, "OMP_NUM_THREADS": "1"}))
        return load_file(tmp_path / "runs" / name / "checkpoints" / "last" / "model" / "model.safetensors")

    given = ("-c", "run.toml", "model.path=smolvla")
    before = load_file(tmp_path / "smolvla" / "model.safetensors")
    whole = weights("whole", *given, "name=whole", "trainer.steps=2")
    first = weights("parts", *given, "name=parts")
    parts = weights("parts", "--resume", "runs/parts", "trainer.steps=2")
    for one, other in ((before, first), (first, parts)):
        changed = {part for part in one if not torch.equal(one[part], other[part])}
        assert "model.action_out_proj.weight" in changed
        assert any(".lm_expert." in part for part in changed)
        assert not any(".vlm." in part for part in changed)  # as the folder says
    saved = tmp_path / "runs" / "parts" / "checkpoints" / "last" / "model"
    statistics = load_file(saved / "policy_postprocessor_step_0_unnormalizer_processor.safetensors")
    assert statistics["action.std"][0] > 0
    assert parts.keys() == whole.keys()
    assert all(torch.equal(parts[part], whole[part]) for part in whole)


@pytest.mark.long
def test_act_for_two_arms_reads_the_keys_that_are_named(tmp_path: Path) -> None:
    pytest.importorskip("sapien", reason="needs rl-plugin-robotwin[sapien]")
    tiny_act.write(tmp_path / "act", state=14, actions=14, cameras={})
    (tmp_path / "run.toml").write_text(TWO_ARMS, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def command(*words: str, status: int = 0) -> str:
        done = rlcore_command(words, tmp_path, environment=environment)
        assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout + done.stderr

    refused = command("eval", "-c", "run.toml", status=2)
    assert "state: 14, target: 14" in refused
    assert "sampler.inputs.state=state or target" in refused
    evaluated = command("eval", "-c", "run.toml", "sampler.inputs.state=target", "--json")
    assert "accuracy" in evaluated
    command("run", "-c", "run.toml", "name=run", "sampler.inputs.state=target")
    protocol = ("robotwin", "evaluate", "reach", "--episodes", "1", "--no-expert-filter")
    assert "reach: 0.0%" in command(*protocol, "--policy", "runs/run")
    given = ("control=qpos", "state=robot", "max_steps=6", "--policy", "act")
    assert "reach: 0.0%" in command(*protocol, *given, "sampler.inputs.state=state")
    assert "sampler.inputs.state=state or target" in command(*protocol, *given, status=2)


@pytest.mark.long
def test_act_with_a_camera_sees_the_picture_that_is_named(tmp_path: Path) -> None:
    pytest.importorskip("sapien", reason="needs rl-plugin-robotwin[sapien]")
    from rl_plugin_robotwin.simulation.rendering import device_of, probe

    if not probe("trivial", device_of()).works:
        pytest.skip("no Vulkan driver that draws")
    tiny_act.write(tmp_path / "act", state=14, actions=14, cameras={"cam_high": (48, 64)})
    (tmp_path / "run.toml").write_text(TWO_ARMS, encoding="utf-8")
    words = ("eval", "-c", "run.toml", "sampler.inputs.state=state", "environment.cameras.head={width=64,height=48}")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    refused = rlcore_command(words, tmp_path, environment=environment)
    assert refused.returncode == 2
    assert "sampler.inputs.cam_high=KEY, one of head_rgb" in refused.stdout + refused.stderr
    succeeded(rlcore_command((*words, "sampler.inputs.cam_high=head_rgb"), tmp_path, environment=environment))
