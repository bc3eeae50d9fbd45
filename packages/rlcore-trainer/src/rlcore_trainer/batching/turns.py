"""Map the turns of a trajectory and their rewards to the tokens that the policy wrote.

Axes: ``T`` the tokens that the policy wrote, over all segments in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from rlcore.types import Trajectory
from torch import Tensor

from rlcore_trainer.batching.arrays import tensor_of


class TurnReward(NamedTuple):
    """The environment's reward for a policy turn."""

    turn: int
    """Index among the policy turns of the trajectory."""
    reward: float


def turn_rewards(trajectory: Trajectory) -> tuple[TurnReward, ...]:
    """Return the rewards of the policy turns that have a reward."""
    policy = [turn for turn in trajectory.turns if turn.kind == "policy"]
    return tuple(TurnReward(i, turn.reward) for i, turn in enumerate(policy) if turn.reward is not None)


def written_turns(trajectory: Trajectory) -> Tensor:
    """Return the policy turn index of each written token, int64 [T]."""
    found = [torch.empty(0, dtype=torch.long)]
    before = 0
    for segment in trajectory.segments:
        starts = [turn.start for turn in segment.turns if turn.kind == "policy"]
        written_T = tensor_of(segment.loss_mask).nonzero()[:, 0]
        turns_T = torch.searchsorted(torch.tensor(starts, dtype=torch.long), written_T, right=True) - 1
        found.append(before + turns_T.clamp(min=0))
        before += len(starts)
    return torch.cat(found)


def placed(rewards: Iterable[TurnReward], turns_T: Tensor) -> Iterator[tuple[int, float]]:
    """Yield each reward with the index on axis T of the last written token of its turn. T must not be empty.

    The reward of a turn without written tokens goes to the last written token before the turn, or to the first token if
    there is none.
    """
    for turn, reward in rewards:
        yield max(0, int(torch.searchsorted(turns_T, turn, right=True)) - 1), reward
