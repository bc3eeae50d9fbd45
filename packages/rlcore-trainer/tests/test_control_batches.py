"""Decisions of a control policy in micro-batches, and the bootstrap of episodes that were cut short."""

from __future__ import annotations

import torch
from rlcore.types import Group, Logprobs, LossMask, NumberArray, Segment, Stop, Task, TokenIds, Trajectory, Turn
from rlcore_trainer.algorithms.advantages.gae import Gae
from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.batching.experience import Experience
from rlcore_trainer.batching.packing import pack
from rlcore_trainer.controller.updates import advantage_inputs

CPU = torch.device("cpu")


def episode(rewards: list[float], *, first: float, cut_short: bool) -> Trajectory:
    """An episode whose state counts up from ``first``."""
    decisions, rows = len(rewards), len(rewards) + cut_short
    states = torch.arange(first, first + rows, dtype=torch.float32)[:, None]
    segment = Segment(
        token_ids=TokenIds([0] * rows),
        loss_mask=LossMask([i < decisions for i in range(rows)]),
        logprobs=Logprobs([-1.0] * rows),
        turns=tuple(
            Turn(kind="policy", start=i, end=i + 1, messages=(), reward=reward) for i, reward in enumerate(rewards)
        ),
        arrays={
            "observation/state": NumberArray.of(states.numpy()),
            "action/sample": NumberArray.of((-states).numpy()),
        },
    )
    stop = Stop.MAX_TURNS if cut_short else Stop.DONE
    return Trajectory(task_id="t", sibling=0, segments=(segment,), stop=stop, reward=0.0)


def experience(*trajectories: Trajectory) -> Experience:
    groups = [Group(task=Task(id=str(i), messages=()), trajectories=(one,)) for i, one in enumerate(trajectories)]
    algorithm = AlgorithmConfig(turn_rewards="only")
    return Experience.of(groups, algorithm, max_response_tokens=8, key=(), grouped=False)


def test_each_decision_is_packed_with_its_own_row() -> None:
    found = experience(episode([0.0] * 3, first=10, cut_short=True), episode([0.0], first=20, cut_short=False))
    (batch,) = pack(found.sequences, 100, CPU)
    rows = {name: array[batch.before_M][:, 0].tolist() for name, array in batch.arrays.items()}
    assert rows["observation/state"] == [10, 11, 12, 20]
    assert rows["action/sample"] == [-10, -11, -12, -20]
    assert batch.sequence_M.tolist() == [0, 0, 0, 1]


def test_decisions_of_a_small_budget_are_all_packed_once() -> None:
    episodes = [episode([0.0] * n, first=10 * n, cut_short=n % 2 == 0) for n in range(1, 6)]
    batches = pack(experience(*episodes).sequences, 4, CPU)
    rows = torch.cat([batch.arrays["observation/state"][batch.before_M] for batch in batches])
    assert sorted(rows[:, 0].tolist()) == sorted(10.0 * n + i for n in range(1, 6) for i in range(n))
    assert len(batches) > 2


def test_only_an_episode_that_was_cut_short_has_a_left_state() -> None:
    found = experience(episode([0.0], first=10, cut_short=False), episode([0.0] * 2, first=20, cut_short=True))
    assert list(found.left_states) == [1]
    (batch,) = pack(list(found.left_states.values()), 100, CPU)
    assert batch.arrays["observation/state"][batch.before_M].tolist() == [[22.0]]


def test_gae_bootstraps_only_episodes_that_were_cut_short() -> None:
    found = experience(episode([1.0, 2.0], first=0, cut_short=True), episode([1.0, 2.0], first=0, cut_short=False))
    values_NT = torch.tensor([[0.5, 0.25]] * 2, dtype=torch.float64)
    inputs = advantage_inputs(
        found,
        penalties_NT=None,
        values_NT=values_NT,
        bootstrap_N=torch.tensor([8.0, 0.0], dtype=torch.float64),
        baselines=False,
    )
    output = Gae(Gae.Config(gamma=0.9, gae_lambda=0.5, whiten=False))(inputs)
    last_N = [2 + 0.9 * 8 - 0.25, 2 - 0.25]
    expected_NT = [[1 + 0.9 * 0.25 - 0.5 + 0.45 * last, last] for last in last_N]
    torch.testing.assert_close(output.advantages, torch.tensor(expected_NT, dtype=torch.float64))
    assert output.returns_NT is not None
    torch.testing.assert_close(output.returns_NT, output.advantages + values_NT)
