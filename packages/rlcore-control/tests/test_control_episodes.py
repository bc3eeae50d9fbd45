"""Vectors of environments, episodes and the episode buffer."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from rlcore.errors import EnvironmentFailure, UserError
from rlcore.plugins.loading import load_attribute

gymnasium = pytest.importorskip("gymnasium", reason="the extra control is not installed")

from control_environments import Counting, Hanging  # noqa: E402
from rlcore_control.environments import (  # noqa: E402
    Outcome,
    Start,
    SyncEnvironments,
)
from rlcore_control.episodes import (  # noqa: E402
    Choice,
    Episode,
    EpisodeBuffer,
    collect,
)
from rlcore_control.processes import AsyncEnvironments  # noqa: E402
from rlcore_control.vector import bounded, environments, episode_seed  # noqa: E402


def constant(recorders):
    """Store the number of the episode and the step with an action that depends on both."""
    return [
        Choice(np.full(2, (one.number + one.steps) / 100), {"at": np.array([one.number, one.steps])})
        for one in recorders
    ]


def played(numbers, *, limit=50, make=Counting, seed=0):
    vector = SyncEnvironments([make] * len(numbers))
    return collect(vector, numbers, constant, seed=seed, limit=limit)


def same(one: Episode, other: Episode) -> bool:
    arrays = [(one.actions, other.actions), (one.rewards_T, other.rewards_T)]
    arrays += [(one.observations[key], other.observations[key]) for key in one.observations]
    return all(np.array_equal(a, b) for a, b in arrays) and (one.number, one.seed) == (other.number, other.seed)


def test_observations_and_rewards_are_those_of_a_bare_environment():
    episode = played([3], seed=10).episodes[0]
    bare = Counting()
    observation, _ = bare.reset(seed=13)
    rows, rewards = [observation["state"]], []
    for t in range(5):
        observation, reward, *_ = bare.step(np.full(2, (3 + t) / 100))
        rows.append(observation["state"])
        rewards.append(reward)
    assert np.array_equal(episode.observations["state"], np.stack(rows))
    assert episode.rewards_T.tolist() == rewards
    assert (episode.seed, episode.terminated, episode.success, episode.instruction) == (13, True, True, "count 13")
    assert episode.terms["late"].tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_processes_give_the_numbers_of_one_process(processes):
    numbers, make = [0, 1, 2], partial(Counting, 4)
    vector = AsyncEnvironments([make] * 3, processes=processes)
    try:
        there = [*collect(vector, numbers, constant, seed=5, limit=9).episodes]
        there += collect(vector, [3, 4, 5], constant, seed=5, limit=9).episodes
    finally:
        vector.close()
    here = SyncEnvironments([make] * 3)
    expected = collect(here, numbers, constant, seed=5, limit=9).episodes
    expected += collect(here, [3, 4, 5], constant, seed=5, limit=9).episodes
    assert len(there) == 6
    assert all(same(one, other) for one, other in zip(there, expected, strict=True))


@pytest.mark.parametrize("truncates", [True, False])
def test_no_transition_joins_two_episodes(truncates):
    make = partial(Counting, 4, truncates=truncates)
    vector = SyncEnvironments([make, make])
    episodes = [
        one for k in range(3) for one in collect(vector, [2 * k, 2 * k + 1], constant, seed=0, limit=9).episodes
    ]
    for episode in episodes:
        assert len(episode) == 4
        assert episode.terminated is not truncates
        assert episode.observations["state"][:, :2].tolist() == [[episode.seed, t] for t in range(5)]


def test_an_episode_of_the_limit_has_that_many_steps_and_is_truncated():
    episode = played([0], limit=3).episodes[0]
    assert len(episode) == 3
    assert not episode.terminated
    assert len(episode.observations["state"]) == 4


def test_episodes_do_not_depend_on_how_slots_are_divided():
    together = played([0, 1, 2, 3]).episodes
    divided = [*played([0, 1]).episodes, *played([2, 3]).episodes]
    assert all(same(one, other) for one, other in zip(together, divided, strict=True))
    assert len({episode_seed(7, number) for number in range(100)}) == 100


@pytest.mark.parametrize(
    ("info", "success"), [({}, None), ({"success": 1}, True), ({"is_success": False, "success": True}, False)]
)
def test_success_is_what_the_environment_reports(info, success):
    assert Outcome({}, 0.0, terminated=True, truncated=False, info=info).success is success


def test_a_step_after_the_end_is_a_failure_and_not_a_reset():
    vector = SyncEnvironments([partial(Counting, 1)])
    vector.reset({0: 0})
    assert isinstance(vector.step({0: np.zeros(2)})[0], Outcome)
    assert isinstance(vector.step({0: np.zeros(2)})[0], EnvironmentFailure)


def test_an_exception_fails_one_episode_and_spares_the_others():
    vector = SyncEnvironments([partial(Counting, dies_at=-2)] * 3)
    found = collect(vector, [0, 1, 2], constant, seed=0, limit=9)
    assert [one.number for one in found.episodes] == [0, 2]
    assert "the arm broke" in str(found.failures[1])
    assert len(collect(vector, [3, 4, 5], constant, seed=0, limit=9).episodes) == 3


class Broken(Counting):
    """Returns NaN in the second step of the episode with seed 1, or in its reset."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def reset(self, **keywords):
        observation, info = super().reset(**keywords)
        if self._part == "reset" and self._seed == 1:
            observation["state"][0] = np.nan
        return observation, info

    def step(self, action):
        observation, reward, *others = super().step(action)
        if (self._seed, self._step) == (1, 2):
            observation["state"][0] = np.inf if self._part == "state" else 0
            reward = np.nan if self._part == "reward" else reward
        return observation, reward, *others


@pytest.mark.parametrize(("part", "named"), [("reset", "state"), ("state", "state"), ("reward", "reward")])
def test_numbers_that_are_not_finite_fail_their_episode(part, named):
    found = collect(SyncEnvironments([partial(Broken, part)] * 3), [0, 1, 2], constant, seed=0, limit=9)
    assert [one.number for one in found.episodes] == [0, 2]
    assert f"infinite numbers: {named}" in str(found.failures[1])


def test_a_dead_process_fails_the_episodes_of_its_environments_and_starts_again():
    vector = AsyncEnvironments([partial(Counting, dies_at=2)] * 4, processes=2)
    try:
        found = collect(vector, [0, 1, 2, 3], constant, seed=0, limit=9)
        assert [one.number for one in found.episodes] == [0, 2]
        assert set(found.failures) == {1, 3}
        assert all(
            "of environments 1, 3 ended with exit status 7" in str(failure) for failure in found.failures.values()
        )
        assert len(collect(vector, [4, 5, 6, 7], constant, seed=0, limit=9).episodes) == 4
    finally:
        vector.close()


def test_environments_of_a_dead_process_are_reset_one_by_one():
    vector = AsyncEnvironments([partial(Counting, dies_at=1)] * 2, processes=1)
    try:
        vector.reset({0: 1, 1: 0})
        assert all(
            isinstance(one, EnvironmentFailure) for one in vector.step(dict.fromkeys([0, 1], np.zeros(2))).values()
        )
        assert "call reset first" in str(vector.step({1: np.zeros(2)})[1])
        assert isinstance(vector.reset({0: 2})[0], Start)
        assert isinstance(vector.step({0: np.zeros(2)})[0], Outcome)
        assert "call reset before step" in str(vector.step({1: np.zeros(2)})[1])
    finally:
        vector.close()


@pytest.mark.slow
def test_an_environment_that_hangs_is_a_failure_and_its_process_starts_again():
    vector, _ = environments([Hanging] * 2, "async", timeout_s=1.0)
    try:
        found = collect(vector, [0, 1], constant, seed=0, limit=9)
        assert 1 in found.failures
        assert "did not answer within 1 s" in str(found.failures[1])
        assert len(collect(vector, [2, 3], constant, seed=0, limit=9).episodes) == 2
    finally:
        vector.close()


@pytest.mark.slow
def test_the_time_limit_is_that_of_one_environment_and_not_of_its_process():
    vector = AsyncEnvironments([partial(Counting, delay_s=0.3)] * 5, processes=1, timeout_s=1.0)
    try:
        assert len(collect(vector, list(range(5)), constant, seed=0, limit=1).episodes) == 5
    finally:
        vector.close()


def test_answers_of_a_process_do_not_wait_for_another_one():
    vector = AsyncEnvironments([Counting, partial(Counting, delay_s=60)], processes=2)
    try:
        vector.reset({0: 3, 1: 4})
        vector.act(dict.fromkeys([0, 1], np.zeros(2)))
        for step in (1, 2, 3):
            answers = vector.receive()
            assert {i: answer.observation["state"][:2].tolist() for i, answer in answers.items()} == {0: [3, step]}
            vector.act({0: np.zeros(2)})
    finally:
        vector.close()


@pytest.mark.parametrize("kind", [SyncEnvironments, AsyncEnvironments])
def test_bad_input_leaves_no_answer_behind(kind):
    vector = kind([Counting] * 2)
    try:
        vector.reset({0: 1, 1: 2}, {0: {"wrong": True}})
        with pytest.raises(UserError, match="wrong"):
            vector.step(dict.fromkeys([0, 1], np.zeros(2)))
        vector.reset({0: 1, 1: 2})
        vector.act({0: np.zeros(2)})
        assert set(vector.receive()) == {0}
        assert vector.receive() == {}
    finally:
        vector.close()


def test_slow_environments_get_processes_and_fast_ones_do_not():
    slow, fast = partial(Counting, delay_s=0.02), Counting
    vector, why = environments([fast, fast])
    vector.close()
    assert isinstance(vector, SyncEnvironments)
    assert "this process" in why
    vector, why = environments([slow, slow])
    vector.close()
    assert isinstance(vector, AsyncEnvironments) or "one core" in why


def test_an_environment_that_cannot_be_created_is_told():
    with pytest.raises(EnvironmentFailure, match="cannot be created"):
        AsyncEnvironments([partial(Counting, nonsense=1)])


@pytest.mark.parametrize("action", [np.array([np.nan, 0.0]), np.zeros(3), np.array([np.inf, 0.0])])
def test_actions_of_wrong_size_or_without_numbers_are_refused(action):
    with pytest.raises(UserError, match="action"):
        bounded(action, Counting().action_space)


def test_actions_out_of_range_are_clipped():
    assert bounded(np.array([-3.0, 0.5]), Counting().action_space).tolist() == [-1, 0.5]
    with pytest.raises(UserError, match="continuous"):
        bounded(np.zeros(1), gymnasium.spaces.Discrete(3))


# The buffer


def test_whole_episodes_are_evicted_and_counted():
    buffer = EpisodeBuffer(max_episodes=3, max_transitions=1000)
    for episode in played(list(range(5))).episodes:
        buffer.add(episode)
    assert [one.number for one in buffer] == [2, 3, 4]
    assert (len(buffer), buffer.transitions) == (3, 15)
    short = EpisodeBuffer(max_episodes=99, max_transitions=11)
    for episode in buffer:
        short.add(episode)
    assert [one.number for one in short] == [3, 4]
    assert short.transitions == 10
    short.add(played([9], make=partial(Counting, 30)).episodes[0])
    assert [one.number for one in short] == [9]
    assert short.transitions == 30


def test_windows_stay_within_an_episode_and_reach_every_position():
    buffer = EpisodeBuffer(max_episodes=9, max_transitions=1000)
    for episode in played([0, 1]).episodes:
        buffer.add(episode)
    generator, seen = np.random.default_rng(0), set()
    for _ in range(100):
        window = buffer.window(3, generator)
        state = window.observations["state"]
        assert len(window) == 3
        assert len(state) == 4
        assert len(set(state[:, 0])) == 1
        assert np.array_equal(np.diff(state[:, 1]), np.ones(3))
        assert [(a, b) for a, b in window.stored["at"]] == [(state[0, 0], state[0, 1] + t) for t in range(3)]
        seen.add((state[0, 0], state[0, 1], window.terminated))
    assert seen == {(n, t, t == 2) for n in (0, 1) for t in (0, 1, 2)}
    assert buffer.window(6, generator) is None


def test_a_buffer_is_restored_from_its_state(tmp_path):
    buffer = EpisodeBuffer(max_episodes=2, max_transitions=1000)
    for episode in played([0, 1, 2]).episodes:
        buffer.add(episode)
    torch.save(buffer.state_dict(), tmp_path / "buffer.pt")
    other = EpisodeBuffer(max_episodes=2, max_transitions=1000)
    other.load_state_dict(torch.load(tmp_path / "buffer.pt", weights_only=True))
    assert other.transitions == 10
    assert all(same(a, b) for a, b in zip(buffer, other, strict=True))
    one, two = (b.window(2, np.random.default_rng(3)) for b in (buffer, other))
    assert same(one, two)


def test_an_environment_of_a_file_runs_in_another_process(tmp_path):
    file = tmp_path / "counts.py"
    file.write_text("from control_environments import Counting\nclass Mine(Counting): pass\n", encoding="utf-8")
    vector = AsyncEnvironments([load_attribute(f"{file}:Mine")] * 2, processes=1)
    try:
        episodes = collect(vector, [0, 1], constant, seed=5, limit=9).episodes
    finally:
        vector.close()
    assert len(episodes) == 2
