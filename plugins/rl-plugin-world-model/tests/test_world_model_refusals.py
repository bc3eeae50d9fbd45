"""Bad input of the phases: refused with its key and origin, before long work."""

from __future__ import annotations

import resource
import shlex
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import rlcore
import torch
from rl_plugin_world_model import checkpoints
from rl_plugin_world_model.config import NetworkConfig
from rl_plugin_world_model.models.networks import Sizes, WorldModel, enough_memory
from rl_plugin_world_model.sequences import Interface
from rlcore.cli import main
from rlcore.errors import UserError, WriteError

SHORT = {
    "trainer.episodes": 2,
    "trainer.steps_per_episode": 3,
    "trainer.held_out": 1,
    "trainer.passes": 1,
    "trainer.batch_size": 1,
    "model.builder.channels": 8,
    "model.builder.memory": 12,
    "model.builder.codes": 8,
}
FAILING = """
from rl_plugin_world_model.flat_arm import FlatArm

resets = 0


class Failing(FlatArm):
    action = "control"

    def reset(self, *, seed=None, options=None):
        global resets
        resets += 1
        if resets > 4:  # those that the code of the patches is made from
            raise RuntimeError("a motor is hot")
        return super().reset(seed=seed, options=options)
"""
SIZES = " ".join(f"{key}={value}" for key, value in SHORT.items())


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run of phase 1."""
    folder = tmp_path_factory.mktemp("teacher")
    rlcore.train("world-model", recipe="teacher", runs=str(folder), name="t", **SHORT)
    return folder / "t"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command line, and return its status and what it wrote to stderr."""

    def of(line: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", shlex.split(line))
        capsys.readouterr()
        return main(), capsys.readouterr().err

    return of


@pytest.mark.parametrize(
    ("recipe", "given", "key"),
    [
        ("teacher", "sampler.vector=sync", "sampler.vector"),
        ("teacher", "sampler.environments=4", "sampler.environments"),
        ("teacher", "rollout.group_size=4", "rollout.group_size"),
        ("teacher", "evaluation.every=5", "evaluation.every"),
        ("teacher", "model.dtype=bfloat16", "model.dtype"),
        ("teacher", "checkpoint.best.metric=success", "checkpoint.best"),
        ("teacher", "reward=control-success", "reward"),
        ("teacher", "model.builder.cameras=[]", "model.builder.cameras"),
        ("teacher", "trainer.batch_size=2000000", "trainer.batch_size"),
        ("adversarial", "model.builder.explorer_cameras=[]", "model.builder.explorer_cameras"),
        ("adversarial", "algorithm.entropy=0.5", "algorithm.entropy"),
        ("adversarial", "algorithm.advantage=grpo", "algorithm.advantage"),
        ("adversarial", "trainer.terms=[]", "trainer.terms"),
        ("adversarial", "trainer.terms.0.id=nothing", "nothing"),
    ],
)
def test_settings_without_an_effect_are_refused(command: Any, recipe: str, given: str, key: str) -> None:
    status, told = command(f"rlcore run -p world-model -r {recipe} --dry-run {given}")
    assert status == 2
    assert key in told
    assert f"command line: {given.partition('=')[0]}" in told


def test_a_run_in_the_place_of_its_checkpoint_is_named(command: Any, teacher: Path) -> None:
    status, told = command(f"rlcore run -p world-model -r student --dry-run trainer.teacher={teacher}")
    assert status == 2
    assert f"fix: trainer.teacher={teacher}/checkpoint-2" in told


def test_a_phase_cannot_be_evaluated_on_tasks(command: Any, teacher: Path) -> None:
    status, told = command(f"rlcore eval {teacher}")
    assert status == 2
    assert "world-model-teacher" in told


def test_a_checkpoint_of_another_environment_is_refused(command: Any, teacher: Path) -> None:
    status, told = command(f"rlcore run --resume {teacher} trainer.episodes=3 environment.size=64")
    assert status == 2
    assert "pictures of 32 x 32; this environment has" in told
    assert str(teacher) in told


def test_the_other_networks_of_a_checkpoint_are_named(command: Any, teacher: Path) -> None:
    line = f"rlcore run -p world-model -r adversarial runs={teacher.parent} {SIZES}"
    status, told = command(f"{line} trainer.student={teacher}/checkpoint-2")
    assert status == 2
    assert f"trainer.student={teacher}" in told
    assert "the phase teacher" in told


def test_a_checkpoint_on_a_full_disk_is_explained(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(WriteError, match="checkpoint") as caught:
            checkpoints.save(tmp_path, 1, {"world_model": torch.zeros(100_000)}, {}, keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "PyTorch could not write" in str(caught.value.found)
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_held_out_episodes_that_all_fail_are_an_explained_error(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    settings = {**SHORT, "environment.id": f"{tmp_path}/failing.py:Failing", "runs": str(tmp_path)}
    with pytest.raises(UserError, match="no episode") as caught:
        rlcore.train("world-model", recipe="teacher", **settings)
    assert "a motor is hot" in str(caught.value.found)


@pytest.mark.long
def test_a_student_is_resumed_after_its_teacher_was_deleted(tmp_path: Path, teacher: Path) -> None:
    shutil.copytree(teacher, tmp_path / "t", symlinks=True)
    settings = {**SHORT, "runs": str(tmp_path), "trainer.teacher": f"{tmp_path}/t/checkpoint-2"}
    rlcore.train("world-model", recipe="student", name="s", **settings)
    shutil.rmtree(tmp_path / "t")
    found = rlcore.train(resume=tmp_path / "s", **{"trainer.episodes": 3})
    assert (found.path / "checkpoint-3/model.pt").is_file()


def test_the_last_round_is_shown(teacher: Path) -> None:
    shown = [path.name for folder in ("samples", "videos") for path in (teacher / folder).iterdir()]
    assert shown == ["episode_000002.png", "episode_000002.mp4"]


def test_networks_that_do_not_fit_in_memory_are_refused() -> None:
    with pytest.raises(UserError) as caught, enough_memory():
        WorldModel(NetworkConfig(memory=65_536, channels=65_536), Sizes(2, 2))
    assert "allocate" in str(caught.value.found)
    assert "model.builder" in str(caught.value.fix)
    with pytest.raises(RuntimeError, match="shapes"), enough_memory():
        torch.ones(2, 3) @ torch.ones(2, 3)


def test_an_environment_without_pictures_is_told_how_to_get_them() -> None:
    state = gymnasium.spaces.Dict({"state": gymnasium.spaces.Box(-1, 1, (2,), np.float32)})
    with pytest.raises(UserError) as caught:
        Interface(state, gymnasium.spaces.Box(-1, 1, (2,)), NetworkConfig())
    assert "environment.cameras" in str(caught.value.fix)
