"""RoboTwin's own tasks, from the checkout RLCORE_ROBOTWIN in the interpreter RLCORE_ROBOTWIN_PYTHON."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished_runs import metrics, succeeded
from rl_plugin_robotwin.config import SHOWN
from rl_plugin_robotwin.data.checkout_tasks import demonstrations
from rl_plugin_robotwin.evaluation.arenas import CheckoutArena, Place
from rl_plugin_robotwin.evaluation.cli import BLOCKS
from rl_plugin_robotwin.evaluation.evaluating import Request, evaluate
from rl_plugin_robotwin.evaluation.jobs import Setting
from rl_plugin_robotwin.evaluation.results import Candidate
from rlcore.errors import EnvironmentFailure, UserError

CHECKOUT, PYTHON = os.environ.get("RLCORE_ROBOTWIN"), os.environ.get("RLCORE_ROBOTWIN_PYTHON")
DOCS = Path(__file__).resolve().parents[3] / "docs"
TABLE = DOCS / "results" / "robotwin-checkout.md"
GUIDE = DOCS / "how-to" / "evaluate-on-robotwin.md"
RANDOM_STEPS = 300
COLLIDING = ("blocks_ranking_size", 100_009)
"""The expert's fingers graze a block here and push it. The task is done only if this is repeated exactly."""
pytestmark = [
    pytest.mark.proof,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(not CHECKOUT or not PYTHON, reason="needs RLCORE_ROBOTWIN and RLCORE_ROBOTWIN_PYTHON"),
]
CALM = """
import numpy as np

def calm(trajectory, task):
    return 1 / (1 + float(np.abs(np.asarray(trajectory.segments[0].arrays["executed"])).mean()))
"""
"""A reward that differs between episodes, also of a policy that never succeeds."""
FALLING = '''
import sapien
from ._base_task import Base_Task
from .utils import *


class falling_block(Base_Task):
    """A block that turns while it falls for longer than RoboTwin waits."""

    def setup_demo(self, **kwags):
        super()._init_task_env_(**kwags)

    def load_actors(self):
        self.block = create_box(scene=self, pose=sapien.Pose([0, 0, 2000]), half_size=[0.02] * 3, color=(1, 0, 0))
        for part in self.block.actor.components:
            if isinstance(part, sapien.physx.PhysxRigidDynamicComponent):
                part.set_angular_damping(0)
                part.set_angular_velocity([0, 0, 5])

    def check_success(self):
        return False
'''


def arena_of(task: str = "stack_blocks_two", *, checkout: str | None = CHECKOUT, **options: Any) -> CheckoutArena:
    return CheckoutArena(task, Place(checkout=checkout, python=PYTHON, options={"timing": "fixed", **options}))


@pytest.fixture(scope="module")
def arena() -> Iterator[CheckoutArena]:
    opened = arena_of()
    yield opened
    opened.close()


def test_the_expert_solves_the_block_tasks_and_chance_does_not() -> None:
    found = {}
    for policy, more in (("expert", {}), ("random", {"max_steps": RANDOM_STEPS})):
        place = Place(checkout=CHECKOUT, python=PYTHON, options={"timing": "fixed", **more})
        setting = Setting(place=place, policy=policy)
        request = Request(tasks=BLOCKS, setting=setting, episodes=10, expert_filter=policy == "expert")
        found[policy] = evaluate(request)
    write_table(found)
    for task in BLOCKS:
        expert = found["expert"]["tasks"][task]
        assert expert["episodes"] == 10, task
        assert expert["successes"] == 10, task
        assert len(expert["rejected"]) <= 1, task
        assert found["random"]["tasks"][task]["successes"] == 0, task
    changed = subprocess.run(["git", "status", "--short"], cwd=CHECKOUT, capture_output=True, text=True).stdout
    assert changed.strip() == "", "the checkout was changed"


def test_an_episode_repeats_itself_whatever_was_before(arena: CheckoutArena) -> None:
    candidate = arena.expert(100_000)
    assert candidate.status == "success"
    actions = list(arena.script(candidate))[:40]

    def played() -> list[np.ndarray]:
        observation, _ = arena.begin(candidate)
        return [observation["state"], *(arena.step(action)[0]["state"] for action in actions)]

    first = played()
    arena.begin(Candidate(seed=7, status="unchecked"))
    assert np.array_equal(np.stack(first), np.stack(played()))


def test_the_state_is_measured_and_differs_from_the_targets(arena: CheckoutArena) -> None:
    observation, info = arena.begin(Candidate(seed=100_000, status="unchecked"))
    action = observation["target"].copy()
    action[0] += 0.3
    after = arena.environment.step(action)[0]
    assert after["target"][0] == pytest.approx(action[0], abs=1e-5)
    assert 1e-4 < abs(after["state"][0] - after["target"][0]) < 0.3
    assert info["embodiment"]


def test_a_step_after_the_end_is_an_error() -> None:
    arena = arena_of(max_steps=1)
    observation, _ = arena.begin(Candidate(seed=100_000, status="unchecked"))
    _, reward, terminated, truncated, _ = arena.environment.step(observation["target"])
    assert (reward, terminated, truncated) == (0.0, False, True)
    with pytest.raises(EnvironmentFailure, match="reset"):
        arena.environment.step(observation["target"])
    arena.begin(Candidate(seed=100_001, status="unchecked"))
    with pytest.raises(UserError):
        arena.environment.step(np.full(observation["target"].shape, np.nan))
    arena.close()


def test_time_optimal_actions_report_paths_that_are_not_found() -> None:
    arena = arena_of(timing="topp", control="ee")
    arena.begin(Candidate(seed=100_000, status="unchecked"))
    far = np.array([1.4, 1.4, 1.9, 1, 0, 0, 0, 1.0] * 2, dtype=np.float32)
    info = arena.environment.step(far)[-1]
    assert info["plan_failed"]
    assert info["physics_steps"] > 0
    arena.close()


def test_pictures_have_the_size_that_the_space_declares() -> None:
    arena = arena_of(cameras=["head", "left_wrist"])
    observation, _ = arena.begin(Candidate(seed=100_000, status="unchecked"))
    assert observation["head_rgb"].shape == (240, 320, 3)
    assert observation["head_rgb"].std() > 5
    assert set(observation) == {"state", "target", "head_rgb", "left_wrist_rgb"}
    arena.close()


def test_the_expert_gives_demonstrations_and_the_scene_can_be_filmed(arena: CheckoutArena) -> None:
    environment: Any = arena.environment
    (shown,) = demonstrations(environment, 1, seed=SHOWN)
    actions, states = np.asarray(shown.actions), np.asarray(shown.observations["state"])
    assert actions.shape == states.shape
    assert len(actions) > 50
    assert shown.instruction
    environment.ask("watch")
    environment.reset(seed=3)
    assert environment.render().shape == (240, 320, 3)


def test_the_motion_of_the_expert_is_repeated_exactly_in_any_mode() -> None:
    task, seed = COLLIDING
    arena = arena_of(task, timing="topp", control="ee")
    candidate = arena.expert(seed)
    assert candidate.status == "success"
    parts = list(arena.script(candidate))
    assert np.array_equal(np.concatenate(parts), arena.environment.ask("expert", seed)["motion"])
    arena.begin(candidate)
    for part in parts:
        *_, terminated, _, info = arena.step(part)
        if terminated:
            break
    assert info["is_success"]
    arena.close()


def test_demonstrations_have_joint_positions_alone() -> None:
    arena = arena_of(control="delta_qpos")
    with pytest.raises(UserError) as caught:
        next(iter(demonstrations(arena.environment, 1, seed=SHOWN)))
    assert caught.value.where == "environment.control"
    arena.close()


def test_the_run_of_the_guide_clones_trains_and_films(tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio_ffmpeg")
    found = re.search(r"```toml\n(\[environment\]\n.+?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    (tmp_path / "blocks.toml").write_text(found[1])
    (tmp_path / "calm.py").write_text(CALM)
    (tmp_path / "more.toml").write_text('[[reward]]\nid = "control-success"\n[[reward]]\nid = "calm.py:calm"\n')
    short = ["sampler.max_steps=30", "warmup.episodes=1", "warmup.steps=10", "trainer.steps=1"]
    short += ["trainer.tasks_per_step=1", "rollout.group_size=2", "data.evaluation=1", "evaluation.every=1"]
    words = [sys.executable, "-m", "rlcore", "run", "-p", "robotwin", "-c", "blocks.toml", "-c", "more.toml"]
    words += [f"environment.python={PYTHON}", *short]
    done = succeeded(subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False))
    losses = [float(loss) for loss in re.findall(r"warm-up +\d+/10 +loss +([\d.]+)", done.stdout)]
    assert losses[-1] < losses[0] / 2
    (run,) = (tmp_path / "runs").iterdir()
    start, trained = metrics(run)
    assert (start["step"], trained["step"], trained["updates"]) == (0, 1, 1)
    videos = sorted((run / "videos").glob("*.mp4"))
    assert [video.name[:6] for video in videos] == ["000000", "000001"]
    for video in videos:
        read = [imageio.get_ffmpeg_exe(), "-v", "error", "-i", str(video), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
        content = subprocess.run(read, capture_output=True, check=True).stdout
        pictures = np.frombuffer(content, np.uint8).reshape(-1, 240, 320, 3).astype(int)
        assert len(pictures) == 31
        assert np.abs(pictures[-1] - pictures[0]).max() > 50


def test_unstable_seeds_are_named_and_bounded(tmp_path: Path) -> None:
    copied = tmp_path / "RoboTwin"
    assert CHECKOUT is not None
    for name in ("envs", "env_cfg", "description/task_instruction"):
        shutil.copytree(Path(CHECKOUT) / name, copied / name)
    (copied / "envs" / "falling_block.py").write_text(FALLING)
    arena = arena_of("falling_block", checkout=str(copied))
    tried = arena.expert(5)
    assert tried.status == "unstable", tried.error
    with pytest.raises(EnvironmentFailure, match="do not rest; seeds tried: 5"):
        arena.begin(Candidate(seed=5, status="unchecked"))
    arena.close()


def test_a_machine_that_cannot_draw_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "none.json").write_text("{}")
    monkeypatch.setenv("VK_DRIVER_FILES", str(tmp_path / "none.json"))
    arena = arena_of()
    with pytest.raises(UserError) as caught:
        arena.begin(Candidate(seed=100_000, status="unchecked"))
    assert "Mesa" in str(caught.value.fix)
    arena.close()


def write_table(found: dict[str, dict[str, Any]]) -> None:
    version = found["expert"]["robotwin"]
    lines = [
        "# RoboTwin's own tasks",
        "",
        f"Ten episodes of each task in RoboTwin {version}, unmodified and without its assets, with two Pandas, mplib",
        f"and actions of 60 ms, on a CPU. The random walk has {RANDOM_STEPS} actions. Wilson intervals, 95 %. By",
        "`uv run pytest -m proof plugins/rl-plugin-robotwin/tests/test_robotwin_tasks.py`.",
        "",
        "RoboTwin's expert tries each seed first, and a seed with which it fails is rejected. Its motion is then",
        "repeated in the scene of the same seed, in parts of 60 ms: with the same drive targets, velocities and forces",
        "in each step of the physics. So it is the same also where fingers push a block, as in `blocks_ranking_size`.",
        "",
        "| task | expert | interval | rejected seeds | steps of the expert | random |",
        "|---|---|---|---|---|---|",
    ]
    for task, expert in found["expert"]["tasks"].items():
        steps = [one["steps"] for one in expert["list"]]
        low, high = expert["interval"]
        other = found["random"]["tasks"][task]
        counts = (
            f"{expert['successes']} of {expert['episodes']} | {low:.2f} to {high:.2f} | {len(expert['rejected'])} | "
            f"{min(steps)} to {max(steps)}"
        )
        lines.append(f"| `{task}` | {counts} | {other['successes']} of {other['episodes']} |")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
