"""Control steps of the bimanual environment, against a bare SAPIEN loop over the same scene."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from comparison import Absent, Comparison
from rl_plugin_robotwin.environment import BimanualEnvironment
from rl_plugin_robotwin.simulation.arms import STROKE
from rl_plugin_robotwin.simulation.cameras import NAMES, CameraConfig
from rl_plugin_robotwin.simulation.rendering import device_of, probe
from rl_plugin_robotwin.simulation.scene import SUBSTEPS

VERSIONS = ("rl-plugin-robotwin", "sapien", "gymnasium", "numpy")

FLOOR = 0.9


def made(cameras: Sequence[str], steps: int) -> tuple[BimanualEnvironment, np.ndarray]:
    """The environment, and the actions of an episode: both arms swing above the table."""
    environment = BimanualEnvironment(
        task="stack_two",
        control="qpos",
        max_steps=steps + 1,
        cameras={name: CameraConfig(width=64, height=64) for name in cameras},
        render="trivial" if cameras else "none",
    )
    environment.reset(seed=0)
    home = np.concatenate([np.append(arm.home, 0.5) for arm in environment.scene.arms.values()])
    swing = 0.1 * np.sin(0.1 * np.arange(steps)[:, None] + np.arange(14))
    swing[:, (6, 13)] = 0
    return environment, (home + swing).astype(np.float32)


def ours(environment: BimanualEnvironment, actions: np.ndarray) -> Callable[[], float]:
    """Steps of the environment."""

    def run() -> float:
        environment.reset(seed=0)
        started = time.perf_counter()
        for action in actions:
            observation, *_ = environment.step(action)
        seconds = time.perf_counter() - started
        assert np.abs(observation["state"][:6] - actions[-1][:6]).max() < 0.1
        return seconds

    return run


def bare(environment: BimanualEnvironment, actions: np.ndarray) -> Callable[[], float]:
    """The same scene, driven without the environment: targets, physics, positions, and pictures."""

    def run() -> float:
        environment.reset(seed=0)
        scene = environment.scene
        arms, simulator = list(scene.arms.values()), scene._scene
        bodies = [arm._body for arm in arms]
        drives = [joint for body in bodies for joint in body.get_active_joints()]
        entities = [actor._entity for actor in scene.actors.values()]
        cameras = [camera._component for camera in scene._cameras.values()]
        columns = [*range(6), 6, 6, *range(7, 13), 13, 13]
        scale = np.array([*[1.0] * 6, STROKE, STROKE] * 2)
        started = time.perf_counter()
        for action in actions:
            for drive, target in zip(drives, (action[columns] * scale).tolist(), strict=True):
                drive.set_drive_target(target)
            for _ in range(SUBSTEPS):
                simulator.step()
            parts = [body.get_qpos() for body in bodies]
            parts += [part for entity in entities for part in (entity.pose.p, entity.pose.q)]
            parts += [part for arm in arms for part in (arm.hand.entity_pose.p, arm.hand.entity_pose.q)]
            state = np.concatenate(parts)
            if cameras:
                simulator.update_render()
            for camera in cameras:
                camera.take_picture()
                (np.clip(camera.get_picture("Color")[..., :3], 0, 1) * 255).astype(np.uint8)
        seconds = time.perf_counter() - started
        assert np.abs(state[:6] - actions[-1][:6]).max() < 0.1
        return seconds

    return run


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """State alone, and with three cameras of 64 x 64 pixels."""
    state = made((), 10 if smoke else 1000)
    found = [Comparison(name="state", ours=ours(*state), peer=bare(*state), floor=FLOOR)]
    works = probe("trivial", device_of())
    if works.works:
        pictures = made(NAMES, 5 if smoke else 200)
        found.append(Comparison(name="three-cameras", ours=ours(*pictures), peer=bare(*pictures), floor=FLOOR))
    elif smoke:
        missing = Absent(f"no pictures here: {works.text}")
        found.append(Comparison(name="three-cameras", ours=lambda: 0.0, peer=missing, floor=FLOOR))
    else:
        raise SystemExit(f"no pictures can be drawn here: {works.text}")
    return found
