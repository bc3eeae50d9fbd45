"""Episodes of a control policy: keyed by task and sibling, and complete for training."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from rlcore.errors import UserError
from rlcore.types import Boundary, Stop, Task, Trajectory

gymnasium = pytest.importorskip("gymnasium", reason="the extra control is not installed")

from control_environments import Counting  # noqa: E402
from rlcore_control.environments import SyncEnvironments  # noqa: E402
from rlcore_control.models.config import TinyVLAConfig  # noqa: E402
from rlcore_control.models.observations import View  # noqa: E402
from rlcore_control.models.spaces import Spaces  # noqa: E402
from rlcore_control.models.vla import VisionLanguageAction, create  # noqa: E402
from rlcore_control.policy import ControlPolicy  # noqa: E402
from rlcore_control.rollout import Player, jobs_of  # noqa: E402
from rlcore_control.vector import environments  # noqa: E402
from rlcore_trainer.batching.packing import TrainingSequence, pack  # noqa: E402

TASKS = [Task(id=str(seed), messages=(), fields={"seed": seed}) for seed in range(3)]


def model_for(environment: Any, **options: Any) -> VisionLanguageAction:
    spaces = View.of(environment.observation_space, environment.action_space).spaces
    model = create(spaces, TinyVLAConfig(width=16, heads=2, layers=0, **options), seed=0)
    model.train(False)
    return model


def played(
    count: int = 2, *, mode: Any = "sync", greedy: bool = False, max_steps: int = 50, group: int = 2, **options: Any
) -> list[Trajectory]:
    """Six episodes, in ``count`` environments."""
    vector, _ = environments([partial(Counting, **options)] * count, mode)
    try:
        player = Player(model_for(vector, chunk=2, instruction_length=3), vector, max_steps=max_steps)
        jobs = list(jobs_of(TASKS, group, seed=1, purpose="train", step=4))
        return player.play(jobs, greedy=greedy)
    finally:
        vector.close()


def numbers(trajectory: Trajectory, name: str) -> np.ndarray[Any, Any]:
    return np.asarray(trajectory.segments[0].arrays[name])


def test_episodes_do_not_depend_on_the_number_of_environments() -> None:
    alone = played(1)
    assert played(5) == alone
    assert played(2, mode="async") == alone


def test_episodes_do_not_depend_on_how_many_decide_together() -> None:
    alone = played(1, group=8)
    assert len(alone) == 24
    assert played(20, group=8) == alone  # a full block decides while others run
    assert played(20, group=8, mode="async") == alone


def test_siblings_start_alike_and_decide_differently() -> None:
    first, second, other, *_ = played()
    states = [numbers(one, "observation/state")[0].tolist() for one in (first, second, other)]
    assert states[0] == states[1] != states[2]
    assert first.segments[0].logprobs != second.segments[0].logprobs


def test_player_knows_what_the_environments_told_to_do() -> None:
    vector, _ = environments([Counting] * 2, "sync")
    try:
        player = Player(model_for(vector, chunk=2), vector, max_steps=5)
        jobs = list(jobs_of(TASKS, 2, seed=1, purpose="train", step=4))
        player.play(jobs, greedy=True)
    finally:
        vector.close()
    assert player.instructions == {job.task.key: f"count {job.seed}" for job in jobs}


def test_greedy_siblings_are_equal() -> None:
    first, second, *_ = played(greedy=True)
    assert first.metrics == second.metrics
    assert first.turns == second.turns


def test_reward_of_a_decision_is_that_of_all_its_actions() -> None:
    (first, *_) = played(limit=5)
    assert len(first.segments[0]) == 3  # chunks of two actions, the last one cut
    assert first.metrics["steps"] == 5
    assert first.turn_reward == pytest.approx(first.metrics["step_reward"])
    assert first.metrics["reward_terms/late"] == 3
    assert first.metrics["success"] == 1


@pytest.mark.numeric
def test_stored_decisions_have_the_log_probabilities_of_the_policy() -> None:
    trajectories = played(limit=6)
    sequences = [TrainingSequence.of(one.segments[0]) for one in trajectories]
    policy = ControlPolicy(model_for(Counting(), chunk=2, instruction_length=3))
    for batch in pack(sequences, 7, torch.device("cpu")):
        logprobs_M, _ = policy.evaluate(batch)
        torch.testing.assert_close(logprobs_M.double(), batch.engine_logprobs_M, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "stop"),
    [({"limit": 4}, Stop.DONE), ({"limit": 4, "truncates": True}, Stop.MAX_TURNS), ({"max_steps": 3}, Stop.MAX_TURNS)],
)
def test_only_episodes_cut_short_keep_the_state_in_which_they_were_left(options: dict[str, Any], stop: Stop) -> None:
    trajectory = played(**options)[0]
    segment, steps = trajectory.segments[0], trajectory.metrics["steps"]
    assert trajectory.stop is stop
    assert segment.sampled_tokens == 2
    assert segment.loss_mask.tolist() == [True, True] + [False] * (stop is Stop.MAX_TURNS)
    if stop is Stop.MAX_TURNS:
        assert numbers(trajectory, "observation/state")[-1][1] == steps


def test_failed_environment_fails_only_its_own_episodes() -> None:
    trajectories = played(2, dies_at=-2)
    failed = [one.failure is not None and one.failure.boundary is Boundary.ENVIRONMENT for one in trajectories]
    assert failed == [False, False, True, True, False, False]  # the task with seed 1
    assert "the arm broke" in str(trajectories[2].failure)


def test_dead_process_fails_only_its_own_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_control.vector.usable_cores", lambda: 2)
    trajectories = played(2, mode="async", dies_at=2)
    assert [one.failure is not None for one in trajectories] == [False, False, True, True, False, False]


@pytest.mark.parametrize("part", ["state", "reward"])
def test_numbers_that_are_not_finite_fail_their_episode(part: str) -> None:
    class Broken(Counting):
        def step(self, action: Any) -> Any:
            observation, reward, *others = super().step(action)
            if part == "state":
                observation["state"][0] = np.nan
            return observation, np.nan if part == "reward" else reward, *others

    vector = SyncEnvironments([Broken])
    player = Player(model_for(vector), vector, max_steps=5)
    (trajectory,) = player.play(list(jobs_of(TASKS[:1], 1, seed=1, purpose="train", step=1)), greedy=False)
    assert f"infinite numbers: {part}" in str(trajectory.failure)


@pytest.mark.parametrize(
    ("observed", "acted"),
    [
        (gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2)),
        (gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Box(-np.inf, np.inf, (2,))),
        (gymnasium.spaces.Discrete(4), gymnasium.spaces.Box(-1, 1, (2,))),
        (gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(4)}), gymnasium.spaces.Box(-1, 1, (2,))),
    ],
)
def test_spaces_that_a_policy_cannot_control_are_rejected(observed: Any, acted: Any) -> None:
    with pytest.raises(UserError, match="control"):
        View.of(observed, acted)


def test_pictures_are_cameras_and_other_numbers_are_the_state() -> None:
    box = gymnasium.spaces.Box
    space = gymnasium.spaces.Dict(
        {"images/head": box(0, 255, (4, 6, 3), np.uint8), "b": box(-1, 1, (2, 2)), "a": box(-1, 1, (1,), np.float64)}
    )
    view = View.of(space, box(-1, 1, (2,)))
    assert (view.spaces.state, dict(view.spaces.cameras)) == (5, {"head": (4, 6)})
    picture = np.arange(72, dtype=np.uint8).reshape(4, 6, 3)
    found = view.arrays({"images/head": picture, "b": np.array([[1, 2], [3, 4]]), "a": np.array([5.0])})
    assert found["images/head"] is picture
    assert sorted(found["state"].tolist()) == [1, 2, 3, 4, 5]
    assert found["state"].dtype == np.float32


def two_arms() -> tuple[Any, Any]:
    """Spaces with two states and two pictures, and of an action."""
    box = gymnasium.spaces.Box
    parts = {name: box(-10, 10, (14,), np.float32) for name in ("state", "target")}
    parts |= {name: box(0, 255, (4, 6, 3), np.uint8) for name in ("head_rgb", "left_rgb")}
    return gymnasium.spaces.Dict(parts), box(-1, 1, (14,))


def test_inputs_name_the_keys_of_the_state_and_of_cameras() -> None:
    observation = {"state": np.zeros(14), "target": np.ones(14), "head_rgb": np.zeros((4, 6, 3)), "left_rgb": None}
    view = View.of(*two_arms(), {"state": "target", "top": "head_rgb"})
    assert (view.spaces.state, sorted(view.spaces.cameras)) == (14, ["left_rgb", "top"])
    found = view.arrays(observation)
    assert found["state"].tolist() == [1.0] * 14
    assert found["images/top"] is observation["head_rgb"]
    both = View.of(*two_arms(), {"state": ("target", "state")})
    assert both.arrays(observation)["state"].tolist() == [1.0] * 14 + [0.0] * 14
    assert View.of(*two_arms(), {"state": ()}).spaces.state == 0


@pytest.mark.parametrize(
    ("inputs", "key", "words"),
    [
        ({"state": "targte"}, "sampler.inputs.state", "did you mean 'target'?"),
        ({"state": ["state", "head_rgb"]}, "sampler.inputs.state", "state, target"),
        ({"top": "state"}, "sampler.inputs.top", "head_rgb, left_rgb"),
        ({"top": ["head_rgb"]}, "sampler.inputs.top", "head_rgb, left_rgb"),
    ],
)
def test_inputs_without_such_a_key_are_refused(inputs: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        View.of(*two_arms(), inputs)
    assert caught.value.where == key
    assert words in str(caught.value.fix)


def test_a_policy_that_does_not_fit_is_told_which_key_to_set() -> None:
    def fix(state: int, actions: int = 14, *cameras: str) -> str:
        limits = (-1.0,) * actions, (1.0,) * actions
        wanted = Spaces(state=state, cameras=dict.fromkeys(cameras, (9, 9)), low_A=limits[0], high_A=limits[1])
        with pytest.raises(UserError) as caught:
            View.of(*two_arms()).check_fits(wanted, named="the arms", where="model.path")
        assert "28 numbers of state (state: 14, target: 14)" in str(caught.value.found)
        return str(caught.value.fix)

    assert "sampler.inputs.state=state or target" in fix(14)
    assert "sampler.inputs.state to keys with 9 numbers" in fix(9)
    assert "sampler.inputs.top=KEY, one of head_rgb, left_rgb" in fix(28, 14, "top")
    assert "7 numbers of an action" in fix(28, 7)
