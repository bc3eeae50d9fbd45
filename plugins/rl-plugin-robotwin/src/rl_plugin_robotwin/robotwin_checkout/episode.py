"""One episode of a RoboTwin task: a scene, its robot, and what RoboTwin does with them.

A task object is used for one episode only, because RoboTwin keeps planners of former scenes in them.
Vectors are [left joints, left gripper, right joints, right gripper] in radians and openings from 0 to 1.
"""

from __future__ import annotations

import copy
import functools
import random
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rl_plugin_robotwin.robotwin_checkout.drives import Drives
from rl_plugin_robotwin.robotwin_checkout.libraries import no_renderer
from rl_plugin_robotwin.robotwin_checkout.stand_ins import inside, quiet, task_class

SIDES = ("left", "right")
PHYSICS_HZ = 250


class Unstable(Exception):
    """RoboTwin found that objects move by themselves after the set-up with this seed."""


class Episode:
    """A scene that was set up.

    Args:
        folder: in which RoboTwin runs
        name: of the task
        arguments: of RoboTwin's ``setup_demo``
        seed: of the scene

    Raises:
        Unstable: objects do not rest. Another seed is needed.
        UserError: SAPIEN cannot draw.
    """

    def __init__(self, folder: Path, name: str, arguments: dict[str, Any], seed: int) -> None:
        self.folder = folder
        self.task: Any = _adapted(name)()
        _restore_defaults(type(self.task))
        random.seed(seed)
        _seed_planner(seed)
        try:
            with inside(folder), quiet():
                self.task.setup_demo(now_ep_num=0, seed=seed, is_test=True, **copy.deepcopy(arguments))
        except RuntimeError as error:
            if any(word in str(error).lower() for word in ("render", "vulkan", "physical device", "extension")):
                raise no_renderer(error) from error
            raise
        except Exception as error:
            if type(error).__name__ == "UnStableError":
                raise Unstable(str(error)) from error
            raise
        self.task.step_lim = None  # the environment counts, and does not ignore further actions silently
        self.robot = self.task.robot
        self._drives = Drives(self.robot)
        self.plan_failures = 0
        """Paths of arms that could not be timed or planned in this episode."""
        for side in SIDES:
            planner = getattr(self.robot, f"{side}_mplib_planner")
            own: Any = getattr(self.robot, f"{side}_planner", None)
            if hasattr(own, "bind"):
                own.bind(planner.planner)
            planner.TOPP = self._counted(planner.TOPP)

    @property
    def dof(self) -> tuple[int, int]:
        """Joints of the left and the right arm."""
        return len(self.robot.left_arm_joints), len(self.robot.right_arm_joints)

    def targets(self) -> Any:
        """Drive targets and commanded grippers, float32: what RoboTwin itself reports as the state."""
        return np.array(self.robot.get_left_arm_jointState() + self.robot.get_right_arm_jointState(), dtype=np.float32)

    def measured(self) -> Any:
        """Measured positions, float32."""
        values: list[float] = []
        for side in SIDES:
            entity = getattr(self.robot, f"{side}_entity")
            positions, joints = entity.get_qpos(), entity.get_active_joints()
            values += [float(positions[joints.index(joint)]) for joint in getattr(self.robot, f"{side}_arm_joints")]
            low, high = getattr(self.robot, f"{side}_gripper_scale")
            finger = float(positions[joints.index(getattr(self.robot, f"{side}_gripper")[0][0])])
            values.append(min(1.0, max(0.0, (finger - low) / (high - low))))
        return np.array(values, dtype=np.float32)

    def end_pose(self, side: str) -> Any:
        """Position (m) and quaternion w, x, y, z of an arm's end in the world, as RoboTwin's mode ``ee`` has it."""
        return np.array(getattr(self.robot, f"get_{side}_ee_pose")(), dtype=np.float64)

    def success(self) -> bool:
        """Whether the task is done now."""
        return bool(self.task.check_success())

    def act(self, action: Any, kind: str) -> int:
        """Do what RoboTwin does for an action, for as long as it takes; stop at the first success.

        Args:
            action: absolute
            kind: ``qpos`` or ``ee``

        Returns:
            The number of physics steps.
        """
        before, failures = self.task.checks, self._planner_failures()
        with inside(self.folder), quiet():
            self.task.take_action(action, action_type=kind)
        self.plan_failures += self._planner_failures() - failures
        return int(self.task.checks - before)

    def drive(self, target: Any, steps: int) -> int:
        """Move the drive targets in straight lines, for a fixed number of physics steps.

        Args:
            target: vector, absolute
            steps: physics steps

        Returns:
            ``steps``
        """
        start = self.targets().astype(np.float64)
        left, _ = self.dof
        velocity = (target - start) * PHYSICS_HZ / steps
        for index in range(1, steps + 1):
            now = start + (target - start) * index / steps
            self.robot.set_arm_joints(now[:left], velocity[:left], "left")
            self.robot.set_gripper(now[left], "left")
            self.robot.set_arm_joints(now[left + 1 : -1], velocity[left + 1 : -1], "right")
            self.robot.set_gripper(now[-1], "right")
            self.task.scene.step()
        self._judge(steps)
        return steps

    def repeat(self, motion: Any) -> int:
        """Move as an expert did.

        Args:
            motion: consecutive rows of what `play` returned for an equal scene

        Returns:
            The number of physics steps, one for each row.
        """
        for row in motion:
            self._drives.write(row)
            self.task.scene.step()
        self._judge(len(motion))
        return len(motion)

    def pictures(self) -> dict[str, Any]:
        """A picture uint8 [height, width, 3] of each camera, by RoboTwin's name without ``_camera``."""
        self.task.drawing = True
        try:
            with quiet():
                self.task._update_render()
                self.task.cameras.update_picture()
                found = self.task.cameras.get_rgb()
        finally:
            self.task.drawing = False
        return {name.removesuffix("_camera"): np.ascontiguousarray(value["rgb"]) for name, value in found.items()}

    def play(self, every: int) -> tuple[bool, dict[str, Any], list[Any], list[Any]]:
        """Let RoboTwin's expert do the task in this scene.

        Args:
            every: physics steps between recorded vectors

        Returns:
            Whether it succeeded, what it says about the episode, the vectors of drive targets on its way, and its
            motion: the row of `Drives` of each physics step.
        """
        vectors: list[Any] = []
        motion: list[Any] = []
        step = self.task.scene.step

        @functools.wraps(step)
        def recorded() -> None:
            motion.append(self._drives.read())
            step()
            if len(motion) % every == 0:
                vectors.append(self.targets())

        self.task.scene.step = recorded
        try:
            with inside(self.folder), quiet():
                info = self.task.play_once() or {}
        finally:
            self.task.scene.step = step
        vectors.append(self.targets())
        done = bool(self.task.plan_success) and self.success()
        slots = {str(name): str(value) for name, value in dict(info.get("info") or {}).items()}
        return done, slots, vectors, motion

    def close(self) -> None:
        """Free the scene."""
        with quiet():
            self.task.close_env()

    def _judge(self, steps: int) -> None:
        """Count physics steps, and note whether the task is done after them."""
        self.task.checks += steps - 1  # the next line counts one
        if self.success():
            self.task.eval_success = True

    def _counted(self, topp: Callable[..., Any]) -> Callable[..., Any]:
        """RoboTwin's timing of a path, which counts the failures that RoboTwin itself ignores."""

        def timed(path: Any, *positional: Any, **named: Any) -> Any:
            if np.allclose(path[0], path[-1]):
                raise RuntimeError("the arm stays")  # what toppra says less clearly; RoboTwin then holds the arm
            try:
                found = topp(path, *positional, **named)
            except Exception:
                self.plan_failures += 1
                raise
            if not len(found[1]):
                self.plan_failures += 1
            return found

        return timed

    def _planner_failures(self) -> int:
        planners = (getattr(self.robot, f"{side}_planner", None) for side in SIDES)
        return sum(int(getattr(planner, "failures", 0)) for planner in planners)


@functools.cache
def _adapted(name: str) -> Any:
    """A RoboTwin task that draws only when asked, and counts how often its success was checked."""
    base = task_class(name)

    def update_render(self: Any) -> None:
        if self.drawing or self.crazy_random_light:  # the latter draws random numbers here, once per physics step
            base._update_render(self)

    def check_success(self: Any) -> Any:
        self.checks += 1
        return base.check_success(self)

    def get_obs(self: Any) -> Any:
        return base.get_obs(self) if self.drawing else {}

    own = {"_update_render": update_render, "check_success": check_success, "get_obs": get_obs, "checks": 0}
    return type(name, (base,), {**own, "drawing": False})


_DEFAULTS: dict[types.FunctionType, Any] = {}


def _restore_defaults(task: type) -> None:
    """Give RoboTwin's functions their default arguments back, which some of them change."""
    for part in task.__mro__:
        for function in vars(part).values():
            if isinstance(function, types.FunctionType) and function.__defaults__:
                original = _DEFAULTS.setdefault(function, copy.deepcopy(function.__defaults__))
                function.__defaults__ = copy.deepcopy(original)


def _seed_planner(seed: int) -> None:
    import mplib

    mplib.set_global_seed(seed % 2**31)


__all__ = ["PHYSICS_HZ", "SIDES", "Episode", "Unstable"]
