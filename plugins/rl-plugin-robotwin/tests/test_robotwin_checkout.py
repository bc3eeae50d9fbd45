"""RoboTwin checkouts are checked before anything starts, and actions before anything moves."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rl_plugin_robotwin.robotwin_checkout.actions import absolute, checked, limits
from rl_plugin_robotwin.robotwin_checkout.checkout import SURFACE, Checkout, find_checkout
from rl_plugin_robotwin.robotwin_checkout.embodiment import embodiment_settings
from rl_plugin_robotwin.robotwin_checkout.instructions import description, instruction
from rl_plugin_robotwin.robotwin_checkout.libraries import check_libraries, no_renderer
from rl_plugin_robotwin.robotwin_checkout.stand_ins import working_folder
from rlcore.errors import UserError

TWO_JOINTS = np.array([[-2.0, 2.0], [-1.0, 1.0]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, texts in SURFACE.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(texts) if file.suffix == ".py" else "domain_randomization: {}\n")
    (tmp_path / "envs" / "stack_blocks_two.py").write_text("create_box(scene=self)\n")
    (tmp_path / "envs" / "click_bell.py").write_text("self.bell = create_actor(scene=self, modelname='050_bell')\n")
    return tmp_path


def refusal(folder: Path | str | None) -> str:
    with pytest.raises(UserError) as caught:
        find_checkout(None if folder is None else str(folder))
    assert caught.value.fix
    return str(caught.value)


def test_a_checkout_is_found_by_the_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCORE_ROBOTWIN", str(folder))
    assert find_checkout().tasks() == ("click_bell", "stack_blocks_two")


def test_the_commit_of_a_checkout_is_its_version(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".git" / "packed-refs").write_text("# pack-refs\n0123456789abcdef refs/heads/main\n")
    assert find_checkout(str(folder)).version == "0123456789ab"


def test_missing_checkouts_and_other_versions_are_explained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLCORE_ROBOTWIN", raising=False)
    assert "RLCORE_ROBOTWIN" in refusal(None)
    assert "no such" in refusal(folder / "nowhere")
    (folder / "empty").mkdir()
    assert "not a RoboTwin checkout" in refusal(folder / "empty")
    (folder / "envs" / "robot" / "planner.py").write_text("class SomethingElse: ...")
    assert "another version" in refusal(folder)


def test_tasks_that_load_objects_need_the_assets(folder: Path) -> None:
    checkout = find_checkout(str(folder))
    checkout.check_task("stack_blocks_two")
    with pytest.raises(UserError, match="RoboTwin's objects"):
        checkout.check_task("click_bell")
    with pytest.raises(UserError, match="no such task"):
        checkout.check_task("fly_to_the_moon")
    objects = folder / "assets" / "objects" / "objaverse"
    objects.mkdir(parents=True)
    (objects / "list.json").write_text("{}")
    checkout.check_task("click_bell")
    assert working_folder(folder) == folder


def test_hard_settings_need_the_assets(folder: Path) -> None:
    checkout = find_checkout(str(folder))
    with pytest.raises(UserError) as caught:
        checkout.check_settings("demo_randomized", {"domain_randomization": {"random_background": True}})
    assert "background_texture" in str(caught.value.found)
    assert "without_assets" in str(caught.value.fix)


def test_without_assets_robotwin_runs_among_empty_tables(folder: Path) -> None:
    other = working_folder(folder)
    assert other != folder
    assert json.loads((other / "assets/objects/objaverse/list.json").read_text())["item_names"] == []


def test_a_robot_without_files_is_explained(folder: Path) -> None:
    pytest.importorskip("yaml")
    places = folder / "env_cfg" / "task_config" / "_embodiment_config.yml"
    places.write_text("piper:\n  file_path: ./assets/embodiments/piper\n")
    checkout = Checkout(folder, "unknown")
    with pytest.raises(UserError, match="no files"):
        embodiment_settings(checkout, ["piper"], chosen="piper")
    if importlib.util.find_spec("mani_skill") is None:
        with pytest.raises(UserError) as caught:
            embodiment_settings(checkout, ["piper"], chosen=None)
        assert "mani_skill" in str(caught.value.fix)


def test_missing_libraries_come_with_the_command_that_installs_them() -> None:
    if importlib.util.find_spec("mplib") is not None:
        pytest.skip("mplib is installed here")
    with pytest.raises(UserError) as caught:
        check_libraries()
    assert "mplib==0.2.1" in str(caught.value.fix)


def test_an_old_driver_is_explained() -> None:
    error = no_renderer(RuntimeError('Failed to find a supported physical device "cpu"'))
    assert "physical device" in str(error.found)
    assert "Mesa 23.2" in str(error.fix)


def test_the_adapter_needs_nothing_of_the_trainer_to_be_imported() -> None:
    code = "import sys; import rl_plugin_robotwin.robotwin_checkout.environment; print(*sys.modules)"
    words = [sys.executable, "-c", code]
    loaded = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "pydantic", "sapien", "mplib", "rlcore_trainer"} & set(loaded)


def test_actions_are_checked_before_anything_moves() -> None:
    low, high = limits("qpos", (TWO_JOINTS, TWO_JOINTS))
    assert low.tolist() == [-2, -1, 0, -2, -1, 0]
    for wrong in (np.zeros(5), np.full(6, np.nan), np.full(6, 3.0), "up"):
        with pytest.raises(UserError) as caught:
            checked(wrong, low, high, "qpos")
        assert caught.value.fix
    assert checked(high + 1e-5, low, high, "qpos").tolist() == high.tolist()


def test_changes_count_from_the_drive_targets() -> None:
    targets = np.array([0.0, 0.5, 0.9, 0.0, 0.0, 0.5])
    found = absolute(np.array([1.0, 0, 1, 0, -1, -1]), "delta_qpos", targets, (None, None))
    assert found.tolist() == pytest.approx([0.1, 0.5, 1.0, 0.0, -0.1, 0.3])


def test_changes_of_poses_turn_about_the_axes_of_the_world() -> None:
    pose = np.array([0.1, 0.2, 0.9, 1.0, 0.0, 0.0, 0.0])
    change = np.zeros(14)
    change[:6] = [1, 0, -1, 0, 0, 1]
    found = absolute(change, "delta_ee", np.full(6, 0.5), (pose, pose))
    assert found[:3].tolist() == pytest.approx([0.13, 0.2, 0.87])
    assert found[3:7].tolist() == pytest.approx([np.cos(0.075), 0, 0, np.sin(0.075)])
    assert found[8:].tolist() == pytest.approx([*pose, 0.5])


def test_poses_need_a_rotation() -> None:
    action = np.array([0.1, 0.2, 0.9, 0.0, 2.0, 0.0, 0.0, 1.0] * 2)
    assert absolute(action, "ee", np.zeros(6), (None, None))[4] == 1.0
    with pytest.raises(UserError):
        absolute(np.zeros(16), "ee", np.zeros(6), (None, None))


def test_instructions_name_all_that_the_expert_says(folder: Path) -> None:
    texts = folder / "description" / "task_instruction" / "click_bell.json"
    texts.parent.mkdir(parents=True)
    seen = ["Use {a} for {A}", "Press {A}", "Press {B}"]
    texts.write_text(json.dumps({"full_description": "press <the bell>", "seen": seen, "unseen": ["Ring {A}"]}))
    bell = folder / "description" / "objects_description" / "050_bell" / "base1.json"
    bell.parent.mkdir(parents=True)
    bell.write_text(json.dumps({"seen": ["small bell"], "unseen": ["brass bell"]}))
    checkout, slots = find_checkout(str(folder)), {"{A}": "050_bell/base1", "{a}": "left"}
    drawn = {instruction(checkout, "click_bell", "seen", seed, slots) for seed in range(20)}
    assert drawn == {"Use the left arm for the small bell", "Press the small bell"}
    assert instruction(checkout, "click_bell", "unseen", 0, slots) == "Ring the brass bell"
    assert instruction(checkout, "click_bell", "seen", 0, None) == "press the bell"
    assert description(checkout, "stack_blocks_two") == "stack blocks two"


DEVICE = """
import sapien
from rl_plugin_robotwin.robotwin_checkout.stand_ins import use_device
use_device("{device}")
sapien.SapienRenderer()
print(sapien.Scene().render_system.device.name)
"""


def test_scenes_of_robotwin_are_drawn_by_the_device_that_is_named() -> None:
    pytest.importorskip("sapien", reason="needs rl-plugin-robotwin[sapien]")
    from rl_plugin_robotwin.simulation.rendering import probe

    if not probe("trivial", "cpu").works:
        pytest.skip("no Vulkan driver that draws on a CPU")
    words = [sys.executable, "-W", "ignore", "-c"]
    done = subprocess.run([*words, DEVICE.format(device="cpu")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([*words, DEVICE.format(device="cuda:7")], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "cuda:7" in done.stderr
