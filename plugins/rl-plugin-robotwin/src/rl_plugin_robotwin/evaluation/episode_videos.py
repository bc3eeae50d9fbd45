"""Videos of evaluation episodes, in runs whose ``observers`` name the plugin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray
from rlcore.transport.control import RemoteControl
from rlcore.types import Group, Trajectory
from rlcore_control.videos import write_video

from rl_plugin_robotwin.evaluation.notes import EXECUTED, video_name
from rl_plugin_robotwin.robotwin_checkout.environment import RoboTwinEnv
from rl_plugin_robotwin.simulation.cameras import CameraConfig

EPISODES = 2
"""Episodes of each evaluation that are filmed: those of the first tasks."""


def film(run: Any, step: int, groups: Sequence[Group]) -> None:
    """Replay the first episodes of an evaluation and write ``videos/NNNNNN-TASK-done.mp4``, or ``-not-done.mp4``.

    Does nothing where nothing can draw, for environments of other plugins, and without a run directory.

    Args:
        run: a `rlcore.session.session.RunSession`
        step: of the training
        groups: the scored groups

    Raises:
        WriteError: a video cannot be written.
    """
    if run.directory is None:
        return
    environment = _watched(run.environments[0].id, run.environment(run.environments[0].name))
    if environment is None:
        return
    try:
        for group in islice(groups, EPISODES):
            trajectory = group.trajectories[0]
            if trajectory.failure is not None or not trajectory.segments:
                continue
            frames = list(replayed(environment, trajectory, seed=int(group.task.fields["seed"])))
            path = run.directory.path / video_name(step, group.task, trajectory)
            write_video(path, frames, rate=int(environment.metadata["render_fps"]))
    finally:
        environment.close()


def _watched(id: str, made: Any) -> gymnasium.Env[Any, Any] | None:
    """The environment with pictures for people; None, and closed, if it has none."""
    own = getattr(made, "unwrapped", None)
    if isinstance(own, RoboTwinEnv):
        own.watch()
        return own
    if isinstance(own, RemoteControl) and id == "robotwin-checkout":
        own.ask("watch")
        return own
    made.close()
    from rl_plugin_robotwin.environment import BimanualEnvironment  # it needs SAPIEN

    if not isinstance(own, BimanualEnvironment):
        return None
    environment = BimanualEnvironment(own.config.model_copy(update={"watch": CameraConfig(width=320, height=240)}))
    if environment.render_mode is not None:
        return environment
    environment.close()
    return None


def replayed(environment: gymnasium.Env[Any, Any], trajectory: Trajectory, *, seed: int) -> Iterator[NDArray[np.uint8]]:
    """Yield a picture (height, width, 3) of the start and of each step of an episode, which is executed again.

    The last decision may have actions that were not executed, because the episode ended or was cut short.

    Args:
        environment: with a camera for people.
        trajectory: of the same environment.
        seed: of its reset.
    """
    environment.reset(seed=seed)
    yield _picture(environment)
    for action in islice(_actions(trajectory, environment), int(trajectory.metrics["steps"])):
        environment.step(action)
        yield _picture(environment)


def _actions(trajectory: Trajectory, environment: gymnasium.Env[Any, Any]) -> Iterator[NDArray[Any]]:
    """Yield the actions of all decisions, within the limits of the environment."""
    space = environment.action_space
    assert isinstance(space, Box)
    for segment in trajectory.segments:
        decisions = np.asarray(segment.arrays[EXECUTED])[np.asarray(segment.loss_mask.tolist(), bool)]
        for action in decisions.reshape(-1, *space.shape):
            yield np.clip(action, space.low, space.high)


def _picture(environment: gymnasium.Env[Any, Any]) -> NDArray[np.uint8]:
    picture: Any = environment.render()
    assert picture is not None
    return np.asarray(picture)
