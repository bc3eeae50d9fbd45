"""Pictures, and what happens where none can be drawn."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sapien", reason="needs rl-plugin-robotwin[sapien]")

from rl_plugin_robotwin.doctor import robots
from rl_plugin_robotwin.environment import BimanualEnvironment
from rl_plugin_robotwin.simulation.cameras import NAMES, CameraConfig
from rl_plugin_robotwin.simulation.randomisation import RandomisationConfig
from rl_plugin_robotwin.simulation.rendering import device_of, probe
from rlcore.errors import UserError

SMALL = CameraConfig(width=48, height=40)
STATES_ONLY = """
import sys
import numpy as np
from rl_plugin_robotwin.environment import BimanualEnvironment
environment = BimanualEnvironment(task="lift", watch={"width": 32, "height": 32})
environment.reset(seed=0)
environment.step(np.zeros(14))
assert environment.render() is None
print("a step without a driver")
"""


@pytest.fixture
def renders() -> None:
    found = probe("trivial", device_of())
    if not found.works:
        pytest.skip(f"no pictures can be drawn here: {found.text}")


@pytest.fixture
def without_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VK_DRIVER_FILES", "/nonexistent.json")
    monkeypatch.setenv("VK_ICD_FILENAMES", "/nonexistent.json")
    monkeypatch.setattr("rl_plugin_robotwin.simulation.rendering.device_of", lambda: "cpu")
    probe.cache_clear()
    yield
    probe.cache_clear()


def share(picture: np.ndarray, colour: int) -> float:
    """How much of a picture is of one of the colours red, green and blue."""
    others = [channel for channel in range(3) if channel != colour]
    strong = picture[..., colour].astype(int) - picture[..., others].max(axis=-1)
    return float((strong > 60).mean())


@pytest.mark.usefixtures("renders")
def test_cameras_show_the_boxes_of_the_seed() -> None:
    environment = BimanualEnvironment(task="stack_two", cameras=dict.fromkeys(NAMES, SMALL), render_mode="rgb_array")
    first, _ = environment.reset(seed=2)
    assert first in environment.observation_space
    for name in NAMES:
        assert first[f"{name}_rgb"].shape == (40, 48, 3)
        assert first[f"{name}_rgb"].dtype == np.uint8
    assert 0.001 < share(first["head_rgb"], 0) < 0.1
    assert 0.001 < share(first["head_rgb"], 1) < 0.1
    assert first["state"].shape == (14,)  # with cameras, boxes are only seen
    watched = environment.render()
    assert watched is not None
    assert watched.shape == (240, 320, 3)
    moved = environment.step(np.full(14, 0.5))[0]
    assert not np.array_equal(moved["left_wrist_rgb"], first["left_wrist_rgb"])
    again, _ = environment.reset(seed=2)
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert not np.array_equal(environment.reset(seed=3)[0]["head_rgb"], first["head_rgb"])


@pytest.mark.usefixtures("renders")
def test_randomised_looks_change_pictures_and_not_the_layout() -> None:
    looks = RandomisationConfig(random_background=True, clean_background_rate=0, random_head_camera_dis=0.05)
    plain, varied = (
        BimanualEnvironment(task="stack_two", cameras={"head": SMALL}, domain_randomization=each).reset(seed=2)[0]
        for each in (RandomisationConfig(), looks)
    )
    assert np.array_equal(plain["state"], varied["state"])
    assert np.abs(plain["head_rgb"].astype(int) - varied["head_rgb"]).mean() > 5


@pytest.mark.usefixtures("without_driver")
def test_cameras_without_a_driver_are_explained() -> None:
    with pytest.raises(UserError, match="pictures need a Vulkan driver") as caught:
        BimanualEnvironment(task="reach", cameras={"head": SMALL})
    assert "mesa-vulkan-drivers" in str(caught.value)
    findings = {finding.status: finding for finding in robots()}
    assert "only states observed" in findings["warn"].text
    assert "mesa-vulkan-drivers" in findings["warn"].fix


def test_states_are_observed_without_a_driver() -> None:
    missing = {"VK_DRIVER_FILES": "/nonexistent.json", "VK_ICD_FILENAMES": "/nonexistent.json"}
    done = subprocess.run(
        [sys.executable, "-c", STATES_ONLY], env=os.environ | missing, capture_output=True, text=True, check=False
    )
    assert done.stdout == "a step without a driver\n", done.stderr
    assert "no video" in done.stderr


def test_a_driver_that_aborts_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sapien.py").write_text("import os; os.abort()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    probe.cache_clear()
    found = probe("trivial", "cpu")
    probe.cache_clear()
    assert not found.works
    assert "SIGABRT" in found.text


def test_the_doctor_finds_a_simulator_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "sapien.py").write_text("raise ImportError('libvulkan.so.1: no such file')")
    show = "from rl_plugin_robotwin.doctor import robots\nfor found in robots(): print(found.status, found.text)"
    where = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", show], env=where, capture_output=True, text=True, check=False)
    first = done.stdout.splitlines()[0]
    assert first.startswith("warn SAPIEN is installed, but cannot be imported"), done.stderr
    assert "libvulkan.so.1" in first


def test_the_rank_of_a_process_chooses_its_gpu() -> None:
    assert device_of({"LOCAL_RANK": "3"}, present=4) == "cuda:3"
    assert device_of({"LOCAL_RANK": "3", "CUDA_VISIBLE_DEVICES": "5,6"}, present=8) == "cuda:1"
    assert device_of({"CUDA_VISIBLE_DEVICES": "2"}, present=8) == "cuda:0"
    assert device_of({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": ""}, present=8) == "cpu"
    assert device_of({"CUDA_VISIBLE_DEVICES": "-1"}, present=8) == "cpu"
    assert device_of({"LOCAL_RANK": "1"}, present=0) == "cpu"


def test_the_doctor_names_the_simulator_and_a_wrong_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCORE_ROBOTWIN", "/nonexistent")
    findings = list(robots())
    assert findings[0].text.startswith("SAPIEN 3.")
    assert findings[-1].status == "warn"
    assert "not a RoboTwin checkout" in findings[-1].text
    assert "git clone" in findings[-1].fix
    monkeypatch.delenv("RLCORE_ROBOTWIN")
    assert list(robots())[-1].status == "ok"


WITHOUT_VULKAN = """
import multiprocessing, os
is_file = os.path.isfile
os.path.isfile = lambda path: "libvulkan.so" not in str(path) and is_file(path)

def load():
    import rl_plugin_robotwin.simulation.simulator

if __name__ == "__main__":
    load()
    for _ in range(2):
        process = multiprocessing.get_context("spawn").Process(target=load)
        process.start()
        process.join()
        assert process.exitcode == 0
"""


def test_a_missing_libvulkan_is_warned_about_once_for_all_workers(tmp_path):
    pytest.importorskip("sapien")
    script = tmp_path / "workers.py"
    script.write_text(WITHOUT_VULKAN)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("UserWarning: Failed to find system libvulkan") == 1
