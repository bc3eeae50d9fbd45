"""Time-optimal moves keep their limits, end at the goal at rest, and take as long as their way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sapien", reason="needs rl-plugin-robotwin[sapien]")

from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st
from rl_plugin_robotwin.config import EnvironmentConfig
from rl_plugin_robotwin.data.demonstrations import attempt
from rl_plugin_robotwin.environment import BimanualEnvironment
from rl_plugin_robotwin.simulation.arms import GRIPPER_SPEED, JOINT_SPEED
from rl_plugin_robotwin.simulation.control_modes import Mode
from rl_plugin_robotwin.simulation.rotations import downward
from rl_plugin_robotwin.simulation.time_optimal import (
    ACCELERATION,
    LEAST_STEPS,
    PHYSICS_HZ,
    Way,
    seconds_of,
    share_at,
    travel,
)
from rl_plugin_robotwin.tasks import TASKS
from rlcore.cli import main

MODES: tuple[Mode, ...] = ("qpos", "ee")


class Drives:
    """The drive targets of an arm, and a scene in which time passes without physics."""

    def __init__(self, joints: list[float], opening: float) -> None:
        self.target_joints, self.target_opening = joints, opening
        self.seen = [[*joints, opening]]

    def drive(self, joints: list[float], opening: float) -> None:
        self.target_joints, self.target_opening = list(joints), opening

    def advance(self, periods: int, *, substeps: int) -> None:
        assert periods * substeps == 1
        self.seen.append([*self.target_joints, self.target_opening])


def driven(start: list[float], end: list[float] | None, opening: float) -> tuple[int, np.ndarray]:
    """Steps, and the targets [steps + 1, 7] of joints and opening."""
    arm: Any = Drives(list(start), 1.0)
    steps = travel(arm, [Way.of(arm, end, opening)])
    return steps, np.array(arm.seen)


Joints = st.lists(st.floats(-3, 3), min_size=6, max_size=6)


@given(Joints, Joints, st.floats(0, 1))
def test_targets_keep_their_limits_and_end_at_the_goal_at_rest(
    start: list[float], end: list[float], opening: float
) -> None:
    steps, seen = driven(start, end, opening)
    assert len(seen) == steps + 1 >= LEAST_STEPS + 1
    assert seen[-1].tolist() == [*end, opening]
    speeds = np.diff(seen, axis=0) * PHYSICS_HZ
    assert np.abs(speeds[:, :6]).max() <= JOINT_SPEED + 1e-6
    assert np.abs(speeds[:, 6]).max() <= GRIPPER_SPEED + 1e-6
    rest = np.zeros((1, 6))  # before the first step, and after the last one
    changes = np.diff(np.concatenate([rest, speeds[:, :6], rest]), axis=0) * PHYSICS_HZ
    assert np.abs(changes).max() <= ACCELERATION + 1e-3
    ways = np.sign(np.subtract(end, start))
    assert (speeds[:, :6] * ways >= -1e-6).all()


@given(st.floats(0, 6), st.floats(0, 6))
def test_a_longer_way_never_takes_less_time(one: float, other: float) -> None:
    short, long = sorted((one, other))
    assert seconds_of(short) <= seconds_of(long)
    assert driven([0.0] * 6, [short] * 6, 1.0)[0] <= driven([0.0] * 6, [long] * 6, 1.0)[0]


def test_times_are_those_of_the_formulas() -> None:
    assert ACCELERATION == 15
    assert seconds_of(0) == 0
    assert seconds_of(0.15) == pytest.approx(0.2)  # a triangle: 0.1 s at 15 rad/s², and back
    assert seconds_of(0.6) == pytest.approx(0.4)  # just reaches 3 rad/s
    assert seconds_of(3.6) == pytest.approx(1.4)  # 0.2 s, 1 s at 3 rad/s, 0.2 s
    assert [share_at(3.6, at) for at in (0, 0.2 / 1.4, 0.5, 1)] == pytest.approx([0, 0.3 / 3.6, 0.5, 1])
    assert [driven([0.0] * 6, [way] * 6, 1.0)[0] for way in (0.0, 0.15, 0.6, 3.6)] == [12, 48, 96, 336]
    assert driven([0.0] * 6, None, 0.0)[0] == 60  # the gripper alone, at 4 a second


@pytest.mark.parametrize("mode", MODES)
def test_the_rules_of_gymnasium_hold(mode: Mode, recwarn: pytest.WarningsRecorder) -> None:
    check_env(BimanualEnvironment(task="reach", control=mode, timing="topp"), skip_render_check=True)
    assert all("symmetric and normalized" in str(warning.message) for warning in recwarn)


def test_a_farther_goal_takes_more_steps_and_is_reached() -> None:
    environment = BimanualEnvironment(task="lift", control="qpos", timing="topp")
    counts = []
    for turn in (0.0, 0.1, 0.4, 0.8):
        environment.reset(seed=0)
        arm = environment.scene.arms["left"]
        goal = np.concatenate([np.append(each.targets, 1.0) for each in environment.scene.arms.values()])
        goal[0] += turn
        observation, _, _, _, info = environment.step(goal)
        counts.append(info["physics_steps"])
        np.testing.assert_allclose(observation["target"], goal, atol=1e-6)
        np.testing.assert_allclose(info["action_executed"], goal, atol=1e-6)
        environment.step(goal)  # the drives follow their targets with a delay
        assert arm.positions()[0] == pytest.approx(goal[0], abs=0.03)
    assert counts[0] == LEAST_STEPS
    assert sorted(set(counts)) == counts
    environment.close()


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_and_actions_give_the_same_numbers(mode: Mode) -> None:
    found = []
    for _ in range(2):
        environment = BimanualEnvironment(task="stack_two", control=mode, timing="topp")
        environment.reset(seed=3)
        environment.action_space.seed(3)
        steps = [environment.step(environment.action_space.sample()) for _ in range(6)]
        found.append([(observation["state"].tolist(), info["physics_steps"]) for observation, _, _, _, info in steps])
        environment.close()
    assert found[0] == found[1]


def test_poses_out_of_reach_are_reported_and_the_arm_holds_still() -> None:
    environment = BimanualEnvironment(task="reach", control="ee", timing="topp")
    environment.reset(seed=0)
    arms = environment.scene.arms
    action = np.concatenate([np.concatenate([arm.target_pose()[0], downward(0.0), [1.0]]) for arm in arms.values()])
    action[:3] = environment.action_space.high[:3]  # type: ignore[attr-defined]
    left = arms["left"].targets
    info = environment.step(action)[4]
    assert info["plan_failed"]
    assert info["physics_steps"] == LEAST_STEPS
    assert np.array_equal(arms["left"].targets, left)


@pytest.mark.parametrize("mode", ["qpos", "delta_qpos", "ee", "delta_ee"])
def test_a_fixed_period_has_twelve_steps_in_every_mode(mode: Mode) -> None:
    environment = BimanualEnvironment(task="reach", control=mode)
    environment.reset(seed=0)
    assert environment.step(environment.action_space.sample())[4]["physics_steps"] == 12


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TASKS)
def test_experts_succeed(name: str, mode: Mode) -> None:
    environment = BimanualEnvironment(task=name, control=mode, timing="topp")
    assert attempt(environment, seed=0).success
    environment.close()


def test_changes_have_no_time_optimal_move(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="control=delta_ee"):
        EnvironmentConfig(control="delta_ee", timing="topp")
    pytest.importorskip("rlcore_trainer", reason="the extra train is not installed")
    monkeypatch.setattr("sys.argv", ["rlcore", "run", "-p", "robotwin", "environment.timing=topp", "--dry-run"])
    assert main() == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "environment" in said
    assert "use control=qpos or control=ee, or timing=fixed" in said
