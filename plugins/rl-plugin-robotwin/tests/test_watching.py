"""Videos of evaluations show the episodes that were played."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

pytest.importorskip("sapien", reason="needs rl-plugin-robotwin[sapien]")

from rl_plugin_robotwin.data.demonstrations import attempt
from rl_plugin_robotwin.environment import BimanualEnvironment
from rl_plugin_robotwin.evaluation.episode_videos import EXECUTED, replayed
from rl_plugin_robotwin.simulation.rendering import probe
from rlcore.types import Logprobs, LossMask, NumberArray, Segment, Stop, TokenIds, Trajectory


def test_a_replay_shows_every_step_until_the_end() -> None:
    if not probe("trivial", "cpu").works:
        pytest.skip("no Vulkan driver that draws")
    environment = BimanualEnvironment(task="reach", control="delta_ee", render="trivial", render_mode="rgb_array")
    tried = attempt(environment, seed=3)
    actions = tried.demonstration.actions
    steps = len(actions)
    # The last decision has one action too many, which is not executed, and the final row is no decision.
    rows = np.concatenate([actions, np.zeros((2, actions.shape[1]), np.float32)])[:, None]
    count = len(rows)
    segment = Segment(
        token_ids=TokenIds([0] * count),
        loss_mask=LossMask([True] * (count - 1) + [False]),
        logprobs=Logprobs([0.0] * count),
        arrays={EXECUTED: NumberArray.of(rows)},
    )
    trajectory = Trajectory(task_id="3", sibling=0, segments=(segment,), stop=Stop.DONE, metrics={"steps": steps})
    frames = list(replayed(environment, trajectory, seed=3))
    assert len(frames) == steps + 1
    assert frames[0].shape == (240, 320, 3)
    assert not np.array_equal(frames[0], frames[-1])
    cut = dataclasses.replace(trajectory, metrics={"steps": 3.0})  # by sampler.max_steps
    assert np.array_equal(np.stack(list(replayed(environment, cut, seed=3))), np.stack(frames[:4]))
    environment.close()
