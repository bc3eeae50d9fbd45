"""The bundled tasks as a Gymnasium environment."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from numpy.typing import NDArray
from rlcore.errors import EnvironmentFailure, UserError

from rl_plugin_robotwin.config import EnvironmentConfig
from rl_plugin_robotwin.simulation.cameras import WATCH, CameraConfig
from rl_plugin_robotwin.simulation.control_modes import WIDTH, checked, executed, goal, limits
from rl_plugin_robotwin.simulation.kinematics import JOINTS
from rl_plugin_robotwin.simulation.randomisation import vary
from rl_plugin_robotwin.simulation.rendering import renderer_for
from rl_plugin_robotwin.simulation.scene import BASES, CONTROL_HZ, Scene
from rl_plugin_robotwin.simulation.time_optimal import Way, travel
from rl_plugin_robotwin.tasks import bundled
from rl_plugin_robotwin.tasks.layout import Layout
from rl_plugin_robotwin.tasks.state import SIDES, Measured
from rl_plugin_robotwin.tasks.task import BundledTask, features, instruction

Observation: TypeAlias = dict[str, NDArray[Any]]

LARGEST = 10.0
"""Values of ``state`` are clipped to this: a box may be thrown far away."""
SETTLE = 4
"""Control periods before an episode begins, in which boxes come to rest."""
MOVED, TILTED, MOVING = 0.01, 0.9986, 0.02
"""A box is at rest if it moved less than this (m), is upright (cosine of 3 degrees) and is slower than this (m/s)."""
OPTIONS = ("instruction", "instructions", "looks")


class BimanualEnvironment(gymnasium.Env[Observation, NDArray[np.float32]]):
    """Two arms at a table with one of the bundled tasks.

    Observations: ``state`` float32 (S,), measured; ``target`` float32 (14,), the drive targets in the same layout as
    the first 14 numbers of ``state`` (left joints and opening, right joints and opening); and ``<camera>_rgb`` uint8
    (height, width, 3) for each camera. Actions: `control_modes`. One step is one control period of 1/20 s, which are 12
    steps of the physics; with ``timing=topp``, it is a time-optimal move (`time_optimal`). The reward is 1 on success.

    ``terminated`` is success, ``truncated`` the limit of steps. ``info`` has ``is_success``, ``success_once``,
    ``step``, ``seed`` (the used one: a reset with it repeats the episode), ``reset_attempts``, ``instruction``,
    ``reward_terms``, ``plan_failed`` (an arm could not reach its pose, and holds still), ``action_executed`` and
    ``physics_steps``; at the end, also ``success_at_end``, ``episode_return``, ``episode_length``, ``plan_failures``
    and ``wall_s``.

    The options of ``reset`` are ``instruction`` (a text), ``instructions`` and ``looks`` (``seen`` or ``unseen``).

    Args:
        config: the table ``[environment]``.
        render_mode: ``rgb_array`` adds the camera for ``render()``.
        **options: keys of the table, instead of `config`.

    Raises:
        UserError: there is no such task, or no renderer although there are cameras.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": CONTROL_HZ}

    def __init__(self, config: EnvironmentConfig | None = None, *, render_mode: str | None = None, **options: Any):
        if config is None:
            config = EnvironmentConfig(**options)
        if render_mode == "rgb_array" and config.watch is None:
            config = config.model_copy(update={"watch": CameraConfig(width=320, height=240)})
        self.config = config
        self.task: BundledTask = bundled(config.task)
        self.max_steps = config.max_steps or self.task.step_limit
        self._renderer = renderer_for(config.render, needed=bool(config.cameras), wished=config.watch is not None)
        self._cameras: dict[str, CameraConfig] = dict(config.cameras) if self._renderer else {}
        if self._renderer is not None and config.watch is not None:
            self._cameras[WATCH] = config.watch
        self.render_mode = "rgb_array" if WATCH in self._cameras else None
        self._whole = config.state == "all" or (config.state == "auto" and not config.cameras)
        self._scene: Scene | None = None
        self._layout = Layout()
        self._over = True
        self._mode, self._timed = config.control, config.timing == "topp"
        low, high = limits(config.control, BASES)
        self._low, self._high = low.tolist(), high.tolist()
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        spaces: dict[str, gymnasium.Space[Any]] = {
            "state": gymnasium.spaces.Box(-LARGEST, LARGEST, (self._state_size(),), np.float32),
            "target": gymnasium.spaces.Box(-LARGEST, LARGEST, (2 * (JOINTS + 1),), np.float32),
        }
        for name, camera in config.cameras.items():
            spaces[f"{name}_rgb"] = gymnasium.spaces.Box(0, 255, (camera.height, camera.width, 3), np.uint8)
        self.observation_space: gymnasium.Space[Any] = gymnasium.spaces.Dict(spaces)

    @property
    def scene(self) -> Scene:
        """The scene of this episode."""
        if self._scene is None:
            raise gymnasium.error.ResetNeeded("call reset() first")
        return self._scene

    @property
    def layout(self) -> Layout:
        """Where the boxes of this episode were put."""
        return self._layout

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode. The same seed gives the same episode, whatever happened before.

        Raises:
            UserError: an unknown option.
            EnvironmentFailure: with no seed that was tried, the boxes came to rest.
        """
        super().reset(seed=seed)
        chosen = _options(options or {})
        first = int(self.np_random.integers(2**31)) if seed is None else seed
        self._started = time.perf_counter()
        for attempt in range(self.config.reset_attempts):
            used = first if attempt == 0 else int(np.random.SeedSequence((first, attempt)).generate_state(1)[0])
            measured = self._build(used, chosen)
            if measured is not None:
                break
        else:
            raise EnvironmentFailure(
                f"the boxes of {self.config.task} did not come to rest with any of {self.config.reset_attempts} seeds, "
                f"from {first} on: another seed may work, or raise environment.reset_attempts"
            )
        self._over, self._step, self._return, self._once, self._plan_failures = False, 0, 0.0, False, 0
        self._facts = {"seed": used, "reset_attempts": attempt + 1, "instruction": self._instruction}
        info = {
            **self._facts,
            "is_success": False,
            "success_once": False,
            "step": 0,
            "reward_terms": {"success": 0.0},
            "plan_failed": False,
        }
        return self._observe(measured), info

    def step(self, action: NDArray[np.float32]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Drive the arms for one control period, or to the goal of the action (``timing=topp``).

        Raises:
            UserError: the action has the wrong size, is not finite or out of range. Nothing moves.
            gymnasium.error.ResetNeeded: the episode is over.
            EnvironmentFailure: the physics diverged.
        """
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over, or has not begun: call reset()")
        mode, scales, scene = self._mode, self.config.scales, self.scene
        numbers = checked(action, self._low, self._high, mode)
        parts, ways = [], []
        failed, width = False, WIDTH[mode]
        for place, arm in zip((0, width), scene.arms.values(), strict=True):
            part = numbers[place : place + width]
            before = arm.target_joints, arm.target_opening
            joints, opening = goal(mode, scales, part, arm)
            failed |= joints is None
            parts.append((part, arm, before, joints is not None))
            if self._timed:
                ways.append(Way.of(arm, joints, opening))
            else:
                arm.approach(before[0] if joints is None else joints, opening, 1 / CONTROL_HZ)
        physics_steps = travel(scene, ways) if self._timed else scene.advance()
        done: list[float] = []
        for part, arm, before, planned in parts:
            done += executed(mode, scales, part, arm, before, planned=planned)
        measured = scene.measured()
        success = self.task.success(measured, self._layout)
        reward = float(success)
        self._step += 1
        self._return += reward
        self._once |= success
        self._plan_failures += failed
        terminated = success and self.config.end_on_success
        truncated = not terminated and self._step >= self.max_steps
        self._over = terminated or truncated
        info: dict[str, Any] = {
            **self._facts,
            "is_success": success,
            "success_once": self._once,
            "step": self._step,
            "reward_terms": {"success": reward},
            "plan_failed": failed,
            "action_executed": np.array(done, np.float32),
            "physics_steps": physics_steps,
        }
        if self._over:
            info |= {
                "success_at_end": success,
                "episode_return": self._return,
                "episode_length": self._step,
                "plan_failures": self._plan_failures,
                "wall_s": time.perf_counter() - self._started,
            }
        return self._observe(measured), reward, terminated, truncated, info

    def render(self) -> NDArray[np.uint8] | None:
        """What the camera for people sees: uint8 (height, width, 3); None without a renderer."""
        return self.scene.pictures((WATCH,))[WATCH] if self.render_mode else None

    def close(self) -> None:
        """Free the scene. May be called several times."""
        if self._scene is not None:
            self._scene.close()
        self._scene, self._over = None, True

    def _build(self, seed: int, options: Mapping[str, Any]) -> Measured | None:
        """Build the scene of a seed; None if it does not come to rest, or begins with success."""
        self.close()
        places, words, looks, poses = np.random.default_rng(seed).spawn(4)
        split = options.get("instructions", self.config.instructions)
        self._layout = self.task.layout(places)
        self._instruction = options.get("instruction") or instruction(self.task, self._layout, words, split=split)
        split = options.get("looks", self.config.looks)
        variation = vary(self.config.domain_randomization, self._layout, looks, split=split)
        scene = self._scene = Scene(self._renderer, variation=variation, cameras=self._cameras)
        if reach := self.config.random_home:
            for arm in scene.arms.values():
                arm.reset(poses.uniform(-reach, reach, JOINTS))
        for box in self._layout.boxes:
            scene.add(box)
        before = scene.measured()
        scene.advance(SETTLE)
        after = scene.measured()
        for name, actor in scene.actors.items():
            if actor.kind != "block":
                continue
            body = after.bodies[name]
            moved = float(np.abs(body.position - before.bodies[name].position).max())
            if not (moved < MOVED and body.up[2] > TILTED and float(np.abs(actor.velocity[:3]).max()) < MOVING):
                return None
        return None if self.task.success(after, self._layout) else after

    def _observe(self, measured: Measured) -> Observation:
        scene = self.scene
        state: list[float] = []
        targets: list[float] = []
        for arm in scene.arms.values():
            joints, opening = arm.sense()
            state += joints
            state.append(opening)
            targets += arm.target_joints
            targets.append(arm.target_opening)
        if self._whole:
            for tool in measured.tools.values():
                state += tool.position.tolist()
            state += features(measured, self._layout).tolist()
        if not math.isfinite(sum(state)):
            self._over = True
            raise EnvironmentFailure(f"the physics of {self.config.task} diverged: positions are not finite")
        if max(state) > LARGEST or min(state) < -LARGEST:
            state = [min(LARGEST, max(-LARGEST, value)) for value in state]
        observation: Observation = {"state": np.array(state, np.float32), "target": np.array(targets, np.float32)}
        if self.config.cameras:
            pictures = scene.pictures(tuple(self.config.cameras))
            observation |= {f"{name}_rgb": picture for name, picture in pictures.items()}
        return observation

    def _state_size(self) -> int:
        robot = 2 * (JOINTS + 1)
        if not self._whole:
            return robot
        layout = self.task.layout(np.random.default_rng(0))
        scene = Scene()
        for box in layout.boxes:
            scene.add(box)
        size = robot + 3 * len(SIDES) + features(scene.measured(), layout).size
        scene.close()
        return size


def _options(options: dict[str, Any]) -> dict[str, Any]:
    for name, value in options.items():
        if name not in OPTIONS:
            raise UserError(
                "an unknown option of reset", found=name, where="reset(options=...)", fix=f"use {', '.join(OPTIONS)}"
            )
        if name != "instruction" and value not in ("seen", "unseen"):
            raise UserError("instructions and looks are seen or unseen", found=str(value), where=f"the option {name}")
    return options
