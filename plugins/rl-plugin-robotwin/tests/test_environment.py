"""The environment keeps Gymnasium's rules, and refuses what it cannot do."""

from __future__ import annotations

import dataclasses
import warnings

import gymnasium
import numpy as np
import pytest

pytest.importorskip("sapien", reason="needs rl-plugin-robotwin[sapien]")

from gymnasium.utils.env_checker import check_env
from rl_plugin_robotwin.config import EnvironmentConfig
from rl_plugin_robotwin.environment import BimanualEnvironment
from rl_plugin_robotwin.simulation.control_modes import Mode
from rl_plugin_robotwin.simulation.rotations import downward
from rl_plugin_robotwin.tasks import TASKS
from rlcore.errors import EnvironmentFailure, UserError

MODES: tuple[Mode, ...] = ("qpos", "delta_qpos", "ee", "delta_ee")


def played(environment: BimanualEnvironment, seed: int, steps: int) -> list[np.ndarray]:
    observation, _ = environment.reset(seed=seed)
    environment.action_space.seed(seed)
    states = [observation["state"]]
    for _ in range(steps):
        states.append(environment.step(environment.action_space.sample())[0]["state"])
    return states


@pytest.mark.parametrize("mode", MODES)
def test_gymnasium_accepts_the_environment(mode: Mode) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*symmetric and normalized")  # absolute positions are neither
        check_env(BimanualEnvironment(task="stack_two", control=mode), skip_render_check=True)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_one_size_of_state_and_standing_still_fails(task: str) -> None:
    environment = BimanualEnvironment(EnvironmentConfig(task=task, max_steps=3))
    for seed in (0, 1):
        observation, info = environment.reset(seed=seed)
        assert observation in environment.observation_space
        assert info["instruction"]
        still = np.zeros(14, np.float32)
        for step in (1, 2, 3):
            observation, reward, terminated, truncated, info = environment.step(still)
            assert observation in environment.observation_space
            assert (reward, terminated, truncated, info["step"]) == (0, False, step == 3, step)
        assert (info["success_at_end"], info["episode_length"], info["episode_return"]) == (False, 3, 0)
        assert info["wall_s"] > 0
    assert environment.observation_space["target"].shape == (14,)  # type: ignore[index]


def test_a_seed_repeats_an_episode_whatever_happened_before() -> None:
    first, second = (BimanualEnvironment(task="stack_two") for _ in range(2))
    states = played(first, 3, 20)
    played(second, 8, 5)
    assert np.array_equal(states, played(second, 3, 20))
    assert np.array_equal(states, played(first, 3, 20))
    assert not np.array_equal(states[0], played(first, 4, 0)[0])
    first.reset(seed=5)
    seeds = [first.reset()[1]["seed"] for _ in range(3)]
    second.reset(seed=5)
    assert seeds == [second.reset()[1]["seed"] for _ in range(3)]
    assert len(set(seeds)) == 3


def test_success_ends_an_episode_with_a_reward() -> None:
    environment = BimanualEnvironment(task="reach", control="ee")
    environment.reset(seed=0)
    goal = np.concatenate(
        [np.concatenate([environment.layout.targets[side], downward(0.0), [1.0]]) for side in ("left", "right")]
    )
    for _ in range(environment.max_steps):
        _, reward, terminated, _, info = environment.step(goal)
        if terminated:
            break
    assert (reward, terminated, info["is_success"], info["success_at_end"]) == (1, True, True, True)
    assert info["reward_terms"] == {"success": 1}
    with pytest.raises(gymnasium.error.ResetNeeded):
        environment.step(goal)


def test_without_an_end_on_success_both_kinds_of_success_are_reported() -> None:
    environment = BimanualEnvironment(task="reach", control="ee", end_on_success=False, max_steps=40)
    environment.reset(seed=0)
    targets = environment.layout.targets
    for step in range(40):
        away = np.array([0.0, -0.1, 0.0]) if step > 25 else np.zeros(3)
        goal = [np.concatenate([targets[side] + away, downward(0.0), [1.0]]) for side in ("left", "right")]
        _, _, terminated, truncated, info = environment.step(np.concatenate(goal))
        assert not terminated
    assert truncated
    assert (info["success_once"], info["success_at_end"]) == (True, False)


@pytest.mark.parametrize(
    ("action", "found"),
    [
        (np.zeros(16), "shape (16,)"),
        (np.zeros((1, 14)), "shape (1, 14)"),
        (np.where(np.arange(14) == 8, np.nan, 0), "nan at index 8 (right joint 2)"),
        (np.where(np.arange(14) == 6, -1.5, 0), "-1.5 at index 6 (left gripper), outside of -1 to 1"),
        (["left"], "shape (0,)"),
    ],
)
def test_invalid_actions_are_refused_before_anything_moves(action: np.ndarray, found: str) -> None:
    environment = BimanualEnvironment(task="reach")
    environment.reset(seed=0)
    before = environment.scene.arms["left"].positions()
    with pytest.raises(UserError) as caught:
        environment.step(action)
    assert found in str(caught.value)
    assert "fix" in str(caught.value)
    assert np.array_equal(environment.scene.arms["left"].positions(), before)
    assert environment.step(np.full(14, 1.00005))[4]["step"] == 1  # float32 arithmetic


def test_poses_out_of_reach_are_reported_and_the_arm_holds_still() -> None:
    environment = BimanualEnvironment(task="reach", control="ee")
    environment.reset(seed=0)
    arms = environment.scene.arms
    here = np.concatenate([np.concatenate([arm.target_pose()[0], downward(0.0), [1.0]]) for arm in arms.values()])
    far = here.copy()
    far[:3] = environment.action_space.high[:3]  # type: ignore[attr-defined]
    left = arms["left"].targets
    info = environment.step(far)[4]
    assert info["plan_failed"]
    assert np.array_equal(arms["left"].targets, left)
    assert info["action_executed"][:7] == pytest.approx(here[:7], abs=1e-5)
    assert not environment.step(here)[4]["plan_failed"]
    zero = here.copy()
    zero[3:7] = 0
    assert environment.step(zero)[4]["plan_failed"]


@pytest.mark.parametrize("mode", ["qpos", "delta_qpos"])
def test_joint_modes_move_the_targets_within_limits_and_report_it(mode: Mode) -> None:
    environment = BimanualEnvironment(task="reach", control=mode, max_steps=100)
    environment.reset(seed=0)
    low, high = environment.action_space.low, environment.action_space.high  # type: ignore[attr-defined]
    for _ in range(60):
        observation, _, _, _, info = environment.step(high)
        assert info["action_executed"] in environment.action_space
    joints = environment.scene.arms["left"].targets
    assert observation["target"][:6] == pytest.approx(joints)
    assert observation["target"][6] == 1
    assert np.abs(observation["state"][:6] - joints).max() < 0.3  # measured: arms and table are in the way
    if mode == "delta_qpos":
        assert info["action_executed"] == pytest.approx(np.zeros(14), abs=1e-5)
    else:
        assert info["action_executed"] == pytest.approx(high, abs=1e-5)
        assert low[6] == 0


def test_changes_of_poses_move_the_tool_by_their_scale() -> None:
    environment = BimanualEnvironment(task="reach", control="delta_ee", scales={"position": 0.02, "rotation": 0.1})
    environment.reset(seed=0)
    arm = environment.scene.arms["right"]
    position, rotation = arm.target_pose()
    action = np.zeros(14)
    action[7:14] = (0.5, -1, 1, 0, 0, 1, -1)
    environment.step(action)
    moved, turned = arm.target_pose()
    assert moved - position == pytest.approx([0.01, -0.02, 0.02], abs=1e-6)
    assert (turned.T @ rotation)[0, 0] == pytest.approx(1, abs=1e-6)  # it still points down
    assert np.arccos((np.trace(turned.T @ rotation) - 1) / 2) == pytest.approx(0.1, abs=1e-5)
    assert arm.target_opening == pytest.approx(0.8)


def test_unstable_seeds_are_retried_and_the_used_one_is_reported() -> None:
    class Falling(TASKS["stack_two"]):  # type: ignore[misc]
        drawn = 0

        def layout(self, generator: np.random.Generator):  # type: ignore[no-untyped-def]
            layout = super().layout(generator)
            self.drawn += 1
            if self.drawn % 4 == 0:
                return layout
            boxes = tuple(dataclasses.replace(box, position=(0.0, 0.3, 0.4)) for box in layout.boxes[:1])
            return dataclasses.replace(layout, boxes=boxes + layout.boxes[1:])

    environment = BimanualEnvironment(task="stack_two")
    environment.task = Falling()
    observation, info = environment.reset(seed=7)
    assert info["reset_attempts"] == 4
    assert info["seed"] != 7
    again, once = BimanualEnvironment(task="stack_two").reset(seed=info["seed"])
    assert once["reset_attempts"] == 1
    assert np.array_equal(again["state"], observation["state"])
    limited = BimanualEnvironment(task="stack_two", reset_attempts=2)
    limited.task = Falling()
    with pytest.raises(EnvironmentFailure, match="did not come to rest with any of 2 seeds"):
        limited.reset(seed=7)


def test_options_of_reset_choose_the_instruction_and_are_checked() -> None:
    environment = BimanualEnvironment(task="reach")
    assert environment.reset(seed=0, options={"instruction": "go"})[1]["instruction"] == "go"
    seen = environment.reset(seed=0)[1]["instruction"]
    assert environment.reset(seed=0, options={"instructions": "unseen"})[1]["instruction"] != seen
    with pytest.raises(UserError, match="unknown option"):
        environment.reset(options={"sed": 1})
    with pytest.raises(UserError, match="seen or unseen"):
        environment.reset(options={"looks": "new"})


def test_steps_before_a_reset_and_after_a_close_are_errors() -> None:
    environment = BimanualEnvironment(task="reach")
    with pytest.raises(gymnasium.error.ResetNeeded):
        environment.step(np.zeros(14))
    environment.reset(seed=0)
    environment.close()
    environment.close()
    with pytest.raises(gymnasium.error.ResetNeeded):
        environment.step(np.zeros(14))


def test_unknown_tasks_and_cameras_are_explained() -> None:
    with pytest.raises(UserError, match="unknown bundled task"):
        BimanualEnvironment(task="raech")
    with pytest.raises(ValueError, match="there is no camera 'nose'"):
        EnvironmentConfig(cameras={"nose": {}})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="cameras need a renderer"):
        EnvironmentConfig(cameras={"head": {}}, render="none")  # type: ignore[dict-item]


def test_arms_begin_near_home_and_a_seed_repeats_it() -> None:
    starts = {}
    for reach in (0.0, 0.1):
        environment = BimanualEnvironment(task="reach", random_home=reach)
        starts[reach] = [environment.reset(seed=seed)[0]["target"] for seed in (3, 3, 4)]
        environment.close()
    home, (first, again, other) = starts[0.0][0], starts[0.1]
    assert np.array_equal(first, again)
    assert np.abs(first - other).max() > 0.01
    assert 0.01 < np.abs(first - home).max() <= 0.1 + 1e-6
