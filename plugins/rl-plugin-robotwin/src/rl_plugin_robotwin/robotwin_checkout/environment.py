"""RoboTwin's tasks as a ``gymnasium.Env``."""

from __future__ import annotations

import copy
import random
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from rlcore.errors import EnvironmentFailure, UserError

from rl_plugin_robotwin.robotwin_checkout.actions import MODES, absolute, checked, limits
from rl_plugin_robotwin.robotwin_checkout.checkout import find_checkout
from rl_plugin_robotwin.robotwin_checkout.embodiment import embodiment_settings
from rl_plugin_robotwin.robotwin_checkout.episode import SIDES, Episode, Unstable
from rl_plugin_robotwin.robotwin_checkout.instructions import instruction
from rl_plugin_robotwin.robotwin_checkout.libraries import prepare

CAMERAS = {"head": "head", "left_wrist": "left", "right_wrist": "right"}
"""RoboTwin's names, by ours."""
FIXED_STEPS = 15
"""Physics steps of an action of fixed length: 60 ms, as long as RoboTwin's own data has between frames."""
SEEDS = 2**32
NEXT_SEED = 1_000_003
"""Distance of the seeds that are tried in a reset, so that the seeds of neighbouring episodes stay different."""
WITHOUT_ASSETS = {"random_background": False, "cluttered_table": False}


class RoboTwinEnv(gymnasium.Env[Any, Any]):
    """A task of an unmodified RoboTwin checkout.

    Observations: ``state`` float32, the measured joint positions (rad) and openings (0 to 1); ``target``, the drive
    targets, which RoboTwin itself calls the state; ``CAMERA_rgb`` uint8 [height, width, 3].

    Args:
        task: name of the task, such as ``stack_blocks_two``
        checkout: folder of RoboTwin; without one, that of the variable RLCORE_ROBOTWIN
        settings: name of a file in ``env_cfg/task_config``: ``demo_clean`` (Easy) or ``demo_randomized`` (Hard)
        without_assets: leave out randomised backgrounds and clutter, which need RoboTwin's assets
        embodiment: ``panda`` for two Pandas of mani_skill, or RoboTwin's name; without one, that of the settings, or
            Pandas if its files are missing
        planner: ``auto``, ``mplib`` or ``curobo``
        shader: ``trivial``, ``default`` or ``rt``
        cameras: some of ``head``, ``left_wrist`` and ``right_wrist``
        control: see `actions`
        timing: ``topp`` lets an action take the time that RoboTwin's path needs, ``fixed`` takes 60 ms
        instructions: ``seen`` or ``unseen``
        max_steps: actions of an episode; without it, RoboTwin's limit for the task
        reset_attempts: seeds that a reset tries if the objects do not rest
        render_mode: ``rgb_array`` for pictures of the head camera, or None

    Raises:
        UserError: something is missing; the message says what, and how to get it.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        task: str = "stack_blocks_two",
        *,
        checkout: str | None = None,
        settings: str = "demo_clean",
        without_assets: bool = False,
        embodiment: str | None = None,
        planner: str = "auto",
        shader: str = "trivial",
        cameras: Sequence[str] = tuple(CAMERAS),
        control: str = "qpos",
        timing: str = "topp",
        instructions: str = "seen",
        max_steps: int | None = None,
        reset_attempts: int = 10,
        render_mode: str | None = None,
    ) -> None:
        _check_choice("control", control, MODES)
        _check_choice("timing", timing, ("topp", "fixed"))
        if timing == "fixed" and control.endswith("ee"):
            raise UserError(
                "actions that are poses take as long as their planned path",
                found=f"control={control} with timing=fixed",
                where="timing",
                fix="control=qpos, or timing=topp",
            )
        for camera in cameras:
            _check_choice("cameras", camera, tuple(CAMERAS))
        self.checkout = find_checkout(checkout)
        self.checkout.check_task(task)
        self.task_name, self.settings, self.render_mode = task, settings, render_mode
        self._mode, self._timing, self._cameras, self._split = control, timing, tuple(cameras), instructions
        self._attempts = reset_attempts
        self._folder = prepare(self.checkout, planner=planner, shader=shader)
        self._arguments = self._setup_arguments(settings, embodiment, without_assets)
        self.max_steps = max_steps or self._step_limit()
        self._joint_limits = [_joint_limits(self._arguments, side) for side in SIDES]
        low, high = limits(control, (self._joint_limits[0], self._joint_limits[1]))
        self.action_space = spaces.Box(low, high, dtype=np.float32)
        self.observation_space = self._observation_space()
        self._episode: Episode | None = None
        self._randomness: Any = None
        self._seed, self._steps, self._return, self._over = 0, 0, 0.0, True
        self._began = 0.0
        self._instruction = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Set up a scene.

        Args:
            seed: of the scene; it must be below 2^32
            options: ``slots``, what the expert said about this seed, for an instruction from RoboTwin's templates;
                ``attempts`` in place of ``reset_attempts``

        Raises:
            EnvironmentFailure: objects did not rest with any of the seeds that were tried.
        """
        super().reset(seed=seed)
        given = options or {}
        first = int(self.np_random.integers(SEEDS)) if seed is None else int(seed)
        tried = []
        for attempt in range(int(given.get("attempts", self._attempts))):
            self._seed = (first + attempt * NEXT_SEED) % SEEDS
            try:
                self._set_up(self._seed)
            except Unstable as error:
                tried.append(f"{self._seed} ({error})")
                continue
            break
        else:
            self._over = True
            raise EnvironmentFailure(f"the objects of {self.task_name} do not rest; seeds tried: {'; '.join(tried)}")
        self._instruction = instruction(self.checkout, self.task_name, self._split, self._seed, given.get("slots"))
        self._steps, self._return, self._over, self._began = 0, 0.0, False, time.monotonic()
        info = self._info(0, 0, None)
        return self._observe(), {**info, "reset_attempts": len(tried) + 1, "unstable_seeds": tried}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Do an action.

        The reward is 1 for the action that succeeds, otherwise 0. The episode then ends.
        ``info["plan_failed"]`` says that an arm did not follow because RoboTwin found no path.

        Raises:
            ResetNeeded: the episode is over.
            UserError: the action is not one of the action space.
        """
        episode = self._present()
        numbers = checked(action, self.action_space.low, self.action_space.high, self._mode)  # type: ignore[attr-defined]
        poses = (episode.end_pose("left"), episode.end_pose("right")) if self._mode == "delta_ee" else (None, None)
        wanted = absolute(numbers, self._mode, episode.targets().astype(np.float64), poses)
        if self._mode == "delta_qpos":
            wanted = self._within_joints(wanted)
        before = episode.plan_failures
        with self._random():
            if self._timing == "fixed":
                physics_steps = episode.drive(wanted, FIXED_STEPS)
            else:
                physics_steps = episode.act(wanted, "ee" if self._mode.endswith("ee") else "qpos")
        executed = np.asarray(action, dtype=np.float32)
        return self._after(physics_steps, episode.plan_failures - before, executed)

    def repeat(self, motion: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """As `step`, with a part of an expert's motion for an action, in any mode of control.

        The scene then is exactly that of the expert, if the seed is, and if all parts are repeated from the first on.

        Args:
            motion: consecutive rows of the ``motion`` of `expert`
        """
        episode = self._present()
        with self._random():
            physics_steps = episode.repeat(motion)
        return self._after(physics_steps, 0, None)

    def _present(self) -> Episode:
        if self._episode is None or self._over:
            raise ResetNeeded("the episode is over: call reset")
        return self._episode

    def _after(self, physics_steps: int, plan_failures: int, action: Any) -> tuple[Any, float, bool, bool, Any]:
        """What `step` returns, after the physics."""
        episode = self._present()
        self._steps += 1
        done = bool(episode.task.eval_success)
        reward = float(done)
        self._return += reward
        truncated = not done and self._steps >= self.max_steps
        self._over = done or truncated
        info = self._info(physics_steps, plan_failures, action)
        return self._observe(), reward, done, truncated, info

    def expert(self, seed: int) -> dict[str, Any]:
        """Let RoboTwin's scripted expert do the task with a seed, in a scene of its own.

        Returns:
            ``status``: success, failure, unstable or error; ``error``, its text; ``slots`` for the instruction;
            ``actions``, float32 [steps, A] of the mode ``qpos``: the expert's drive targets every `FIXED_STEPS`
            physics steps; ``motion``, float64 [physics steps, numbers], for `repeat`; ``control``, the mode of this
            environment.
        """
        actions: list[Any] = []
        motion: list[Any] = []
        slots: dict[str, Any] = {}
        status, text = "failure", ""
        try:
            self._set_up(seed)
            assert self._episode is not None
            with self._random():
                done, slots, actions, motion = self._episode.play(FIXED_STEPS)
            status = "success" if done else "failure"
        except Unstable as error:
            status, text = "unstable", str(error)
        except UserError:
            raise
        except Exception as error:  # RoboTwin's experts raise anything when a grasp is out of reach
            status, text = "error", f"{type(error).__name__}: {error}"
        self._over = True
        size = sum(len(limit) + 1 for limit in self._joint_limits)
        found = self._within_joints(np.array(actions).reshape(-1, size))
        own = {"actions": found.astype(np.float32), "motion": np.array(motion), "control": self._mode}
        return {"status": status, "error": text, "slots": slots, **own}

    def render(self) -> Any:
        """The head camera's picture, uint8 [height, width, 3], or None without a render mode or a scene."""
        if self.render_mode is None or self._episode is None:
            return None
        with self._random():
            return self._episode.pictures()["head"]

    def watch(self) -> None:
        """Draw pictures for `render` from the next reset on, as with ``render_mode="rgb_array"``."""
        self.render_mode = "rgb_array"
        self._arguments["camera"]["collect_head_camera"] = True

    def close(self) -> None:
        """Free the scene."""
        if self._episode is not None:
            self._episode.close()
            self._episode = None
        self._over = True

    def _set_up(self, seed: int) -> None:
        self.close()
        self._episode = Episode(self._folder, self.task_name, self._arguments, seed)
        self._randomness = random.getstate(), np.random.get_state()

    def _random(self) -> Any:
        return _Randomness(self)

    def _observe(self) -> dict[str, Any]:
        assert self._episode is not None
        found: dict[str, Any] = {"state": self._episode.measured(), "target": self._episode.targets()}
        if self._cameras:
            with self._random():
                pictures = self._episode.pictures()
            found.update({f"{name}_rgb": pictures[CAMERAS[name]] for name in self._cameras})
        return found

    def _info(self, physics_steps: int, plan_failures: int, action: Any) -> dict[str, Any]:
        assert self._episode is not None
        success = bool(self._episode.task.eval_success)
        return {
            "is_success": success,
            "success_once": success,
            "success_at_end": success and self._episode.success() if self._over else success,
            "step": self._steps,
            "episode_length": self._steps,
            "episode_return": self._return,
            "seed": self._seed,
            "instruction": self._instruction,
            "reward_terms": {"success": float(success)},
            "physics_steps": physics_steps,
            "plan_failed": plan_failures > 0,
            "action_executed": action if action is not None else np.zeros(self.action_space.shape, np.float32),
            "wall_s": time.monotonic() - self._began,
            "embodiment": self._arguments["embodiment_name"],
            "version": self.checkout.version,
        }

    def _within_joints(self, vectors: Any) -> Any:
        low, high = limits("qpos", (self._joint_limits[0], self._joint_limits[1]))
        return np.clip(vectors, low, high)

    def _setup_arguments(self, settings: str, embodiment: str | None, without_assets: bool) -> dict[str, Any]:
        found = copy.deepcopy(self.checkout.settings(settings))
        if without_assets:
            found.setdefault("domain_randomization", {}).update(WITHOUT_ASSETS)
        self.checkout.check_settings(settings, found)
        head = "head" in self._cameras or self.render_mode is not None
        found["camera"].update(collect_head_camera=head, collect_wrist_camera=len(set(self._cameras) - {"head"}) > 0)
        names = list(found.get("embodiment") or ["aloha-agilex"])
        robots = embodiment_settings(self.checkout, names, chosen=embodiment)
        own = {"task_name": self.task_name, "render_freq": 0, "save_data": False, "eval_mode": True, "need_plan": True}
        return {**found, **robots, **own}

    def _step_limit(self) -> int:
        import yaml

        file = self.checkout.folder / "env_cfg" / "task_config" / "_eval_step_limit.yml"
        return int(yaml.safe_load(file.read_text()).get(self.task_name, 1000))

    def _observation_space(self) -> spaces.Dict:
        import yaml

        size = sum(len(limit) + 1 for limit in self._joint_limits)
        parts: dict[str, spaces.Space[Any]] = {"state": spaces.Box(-np.inf, np.inf, (size,), np.float32)}
        parts["target"] = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        file = self.checkout.folder / "env_cfg" / "task_config" / "_camera_config.yml"
        kinds = yaml.safe_load(file.read_text())
        for name in self._cameras:
            kind = kinds[self._arguments["camera"]["head_camera_type" if name == "head" else "wrist_camera_type"]]
            parts[f"{name}_rgb"] = spaces.Box(0, 255, (int(kind["h"]), int(kind["w"]), 3), np.uint8)
        return spaces.Dict(parts)


class _Randomness:
    """The global generators that RoboTwin draws from, as one environment left them: others may run in between."""

    def __init__(self, owner: RoboTwinEnv) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        if self._owner._randomness is not None:
            random.setstate(self._owner._randomness[0])
            np.random.set_state(self._owner._randomness[1])

    def __exit__(self, *_: object) -> None:
        self._owner._randomness = random.getstate(), np.random.get_state()


def _joint_limits(arguments: dict[str, Any], side: str) -> Any:
    """Limits of an arm's joints from its URDF, [joints, 2] in radians."""
    robot = arguments[f"{side}_embodiment_config"]
    file = Path(arguments[f"{side}_robot_file"]) / robot["urdf_path"]
    found = {}
    for joint in ElementTree.parse(file).getroot().iter("joint"):
        limit = joint.find("limit")
        if limit is not None and limit.get("lower") is not None:
            found[joint.get("name")] = (float(limit.get("lower", 0)), float(limit.get("upper", 0)))
    names = robot["arm_joints_name"][SIDES.index(side)]
    return np.array([found.get(name, (-np.pi, np.pi)) for name in names])


def _check_choice(key: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise UserError(
            f"{key} has an unknown value", found=str(value), where=key, fix=f"choose one of {', '.join(choices)}"
        )


def from_options(options: Any) -> RoboTwinEnv:
    """The environment of a run's table: a `config.CheckoutConfig`, or an object with its attributes."""
    return RoboTwinEnv(**dict(options.model_dump()))


__all__ = ["CAMERAS", "FIXED_STEPS", "RoboTwinEnv", "from_options"]
