"""Trajectories of several roles: advantages and filters compare those of the same task and role."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from rlcore.types import Boundary, Failure, Group, Stop, Trajectory
from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.algorithms.outputs import advantages_of
from rlcore_trainer.batching.experience import Experience
from rlcore_trainer.batching.filtering import spread, usable, verdict
from rlcore_trainer.controller.rollout_metrics import evaluation_metrics, rollout_metrics
from rlcore_trainer.controller.updates import advantage_inputs
from token_trajectories import group, segment
from token_trajectories import trajectory as token_trajectory

EPSILON = 1e-6


def played(role: str, reward: float | None, written: int = 2) -> Trajectory:
    mask = [False, *[True] * written]
    return token_trajectory(segment(range(len(mask)), mask), reward=reward, role=role)


def self_play(seed: int) -> Iterator[Group]:
    """Games of two roles. In some, the second one never acts, or the episode has failed."""
    drawn = random.Random(seed)
    for _ in range(5):
        trajectories: list[Trajectory] = []
        for _ in range(6):
            result = drawn.choice([-1.0, 0.0, 1.0, drawn.random(), None])
            trajectories.append(played("player-0", result, drawn.randrange(1, 5)))
            if drawn.random() < 0.8:
                other = None if result is None else -result
                trajectories.append(played("player-1", other, drawn.randrange(1, 5)))
        yield group(*trajectories)


def experience(groups: list[Group]) -> Experience:
    return Experience.of(groups, AlgorithmConfig(), max_response_tokens=10, key=(0, 1))


@pytest.mark.parametrize("seed", range(4))
def test_grpo_equals_a_loop_over_tasks_and_roles(seed: int) -> None:
    from rlcore_trainer.algorithms.advantages.grpo import grpo

    groups = list(self_play(seed))
    found = experience(groups)
    expected: list[float] = []
    for one in groups:
        of_role: dict[str, list[float]] = {}
        for each in one.trajectories:
            if each.reward is not None:
                of_role.setdefault(each.role, []).append(each.reward)
        for each in one.trajectories:
            rewards = of_role.get(each.role, [])
            if each.reward is None or len(rewards) < 2:
                continue
            mean = sum(rewards) / len(rewards)
            deviation = (sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)) ** 0.5
            expected.append((each.reward - mean) / (deviation + EPSILON) if deviation else 0.0)
    advantages_N, _ = grpo(found.rewards_N, found.compared_N)
    assert advantages_N.tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "opo", "pass_at_k", "reinforce_plus_plus_baseline"])
def test_every_estimator_treats_roles_as_separate_tasks(name: str) -> None:
    from importlib import import_module

    function = getattr(import_module(f"rlcore_trainer.algorithms.advantages.{name}"), name)
    estimator = function.configured(None)
    groups = list(self_play(7))
    together = experience(groups)
    apart = experience([of for one in groups for of in one.roles.values()])
    by_task: dict[str, list[float]] = {}
    for label, found in (("together", together), ("apart", apart)):
        inputs = advantage_inputs(found, penalties_NT=None, values_NT=None, baselines=False)
        advantages = advantages_of(estimator, inputs).advantages
        by_task[label] = sorted(advantages.reshape(len(found), -1).sum(1).tolist())
    assert len(by_task["together"]) == len(by_task["apart"])
    assert by_task["together"] == pytest.approx(by_task["apart"], abs=1e-9)


def test_baselines_belong_to_a_role() -> None:
    groups = [group(played("a", 1.0), played("b", -1.0), played("a", 0.0), played("b", 0.5))]
    baselines = {(0, "a"): 0.25, (0, "b"): -0.5}
    found = Experience.of(groups, AlgorithmConfig(), max_response_tokens=10, key=(0, 1), baselines=baselines)
    assert found.baselines_N.tolist() == [0.25, -0.5, 0.25, -0.5]
    assert found.groups_N.tolist() == [0, 0, 0, 0]
    assert found.compared_N.tolist() == [0, 1, 0, 1]
    only = Experience.of(groups, AlgorithmConfig(), max_response_tokens=10, key=(0, 1), baselines={(0, "a"): 0.0})
    assert only.rewards_N.tolist() == [1.0, 0.0]
    assert only.metrics["baselines/missing"] == 2


def test_a_group_is_kept_if_one_role_has_a_signal() -> None:
    first_differs = group(played("a", 1.0), played("b", 0.0), played("a", 0.0), played("b", 0.0))
    both_equal = group(played("a", 1.0), played("b", 0.0), played("a", 1.0), played("b", 0.0))
    assert verdict(first_differs, "reward", 1.0) is None
    assert verdict(both_equal, "reward", 1.0) == "equal"
    assert verdict(both_equal, "none", 1.0) is None
    assert (spread(first_differs), spread(both_equal)) == (0.5, 0.0)
    episode = group(played("a", 1.0), played("b", -1.0))  # one episode: neither has siblings
    assert usable([episode]) == [episode]
    assert verdict(episode, "none", 1.0) is None
    seldom = group(played("a", 1.0), played("a", 0.0), played("b", 0.0))  # b acted in one of two episodes
    assert [one.role for one in usable([seldom])[0].trajectories] == ["a", "a"]
    failure = Failure(boundary=Boundary.ENVIRONMENT, message="no board")
    early = played("", None).replace(stop=Stop.CANCELLED, failure=failure)  # another episode failed before a role acted
    assert usable([group(played("a", 1.0), played("b", -1.0), early)]) == []


def test_metrics_have_the_mean_reward_of_each_role() -> None:
    groups = [group(played("a", 1.0), played("b", -1.0), played("a", 0.0), played("b", None))]
    metrics = rollout_metrics(groups, success=1.0)
    assert (metrics["reward/a"], metrics["reward/b"], metrics["reward/mean"]) == (0.5, -1.0, 0.0)
    assert metrics["groups/contradictory"] == 0.0  # a result depends on the other role, too
    evaluated = evaluation_metrics(groups, success=1.0)
    assert (evaluated["evaluation/a/reward"], evaluated["evaluation/b/reward"]) == (0.5, -1.0)
    assert torch.isfinite(torch.tensor(list(metrics.values()))).all()
