"""A rollout's scored trajectories as arrays: what advantages are computed from.

Axes: ``N`` the scored trajectories, ``T`` the tokens that the policy wrote, counted in each trajectory from its first
and padded on the right. Tokens that it did not write have no place in T, so no estimator discounts through them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import torch
from rlcore.types import EndReason, Group, Trajectory, derive_seed
from torch import Tensor

from rlcore_trainer.algorithm_config import AlgorithmConfig
from rlcore_trainer.losses import overlong_penalty
from rlcore_trainer.packing import Sequence
from rlcore_trainer.rollout_metrics import usable


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """N scored trajectories. Numbers of trajectories are float64."""

    sequences: tuple[Sequence, ...]
    """All of their written tokens, without advantages."""
    rewards_N: Tensor
    """What is learnt from: scores less penalties, shuffled in a control experiment. Always finite."""
    groups_N: Tensor
    """The place of each one's group in the rollout, int64."""
    lengths_N: Tensor
    """Tokens that the policy wrote, int64."""
    baselines_N: Tensor
    """The score of the greedy answer to each one's task; NaN where none was asked for."""
    learnt_N: Tensor
    """False where a trajectory counts in the statistics but not in the loss."""
    metrics: Mapping[str, float]

    @classmethod
    def of(
        cls,
        groups: SequenceOf[Group],
        algorithm: AlgorithmConfig,
        *,
        max_response_tokens: int,
        key: SequenceOf[object],
        grouped: bool = True,
        baselines: Mapping[int, float] | None = None,
    ) -> Experience:
        """The trajectories of a rollout that have a finite score.

        Args:
            groups: the rollout
            algorithm: ``overlong`` and ``shuffle_rewards`` are read
            max_response_tokens: the length at which the penalty for long answers is whole
            key: what the order of shuffled rewards derives from
            grouped: leave out what failures have left alone in its group, which has nothing to be compared with
            baselines: the score of the greedy answer by index of group; trajectories of a group without one are left
                out and counted
        """
        members: list[tuple[int, Trajectory]] = []
        without_baseline = 0
        for index, group in enumerate(groups):
            scored = _scored(group, grouped=grouped)
            if baselines is not None and index not in baselines:
                without_baseline += len(scored)
                continue
            members += [(index, trajectory) for trajectory in scored]
        trajectories = [trajectory for _, trajectory in members]
        rewards_N = torch.tensor([t.reward for t in trajectories], dtype=torch.float64)
        lengths_N = torch.tensor([t.sampled_tokens for t in trajectories], dtype=torch.long)
        metrics: dict[str, float] = {}
        if baselines is not None:
            metrics["baselines/missing"] = float(without_baseline)
        overlong = algorithm.overlong
        if overlong.buffer and trajectories:
            penalty_N = overlong_penalty(
                lengths_N, max_response_tokens=max_response_tokens, buffer=overlong.buffer, penalty=overlong.penalty
            ).to(torch.float64)
            rewards_N = rewards_N - penalty_N
            metrics["overlong/penalty"] = float(penalty_N.mean())
        if algorithm.shuffle_rewards:
            # The penalties too: a length that costs something could be learnt.
            order = list(range(len(trajectories)))
            random.Random(derive_seed("shuffle", *key)).shuffle(order)
            rewards_N = rewards_N[order]
        learnt = [True] * len(trajectories)
        if overlong.mask_truncated:
            learnt = [trajectory.end_reason is not EndReason.LENGTH for trajectory in trajectories]
            metrics["truncated/masked"] = float(learnt.count(False))
        known = baselines or {}
        return cls(
            sequences=tuple(
                Sequence(
                    token_ids=t.token_ids, loss_mask=t.loss_mask, logprobs=t.logprobs, prompt_length=t.prompt_length
                )
                for t in trajectories
            ),
            rewards_N=rewards_N,
            groups_N=torch.tensor([index for index, _ in members], dtype=torch.long),
            lengths_N=lengths_N,
            baselines_N=torch.tensor([known.get(index, math.nan) for index, _ in members], dtype=torch.float64),
            learnt_N=torch.tensor(learnt, dtype=torch.bool),
            metrics=metrics,
        )

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def trained(self) -> list[int]:
        """The trajectories that have tokens in the loss."""
        return [i for i, learnt in enumerate(self.learnt_N.tolist()) if learnt and int(self.lengths_N[i])]

    @property
    def mask_NT(self) -> Tensor:
        """True on written tokens, False on padding."""
        width = int(self.lengths_N.max()) if len(self) else 0
        return torch.arange(width)[None] < self.lengths_N[:, None]

    def padded(self, rows: Mapping[int, Tensor]) -> Tensor:
        """Numbers of the written tokens of some trajectories, float64 [N, T]; zero elsewhere."""
        padded_NT = torch.zeros(self.mask_NT.shape, dtype=torch.float64)
        for i, row in rows.items():
            padded_NT[i, : len(row)] = row.to(padded_NT)
        return padded_NT

    def token_rewards(self, penalties_NT: Tensor | None = None) -> Tensor:
        """The score on the last written token of each trajectory, less the penalty of each token, [N, T]."""
        rewards_NT = torch.zeros(self.mask_NT.shape, dtype=torch.float64)
        written_N = torch.nonzero(self.lengths_N)[:, 0]
        rewards_NT[written_N, self.lengths_N[written_N] - 1] = self.rewards_N[written_N]
        return rewards_NT if penalties_NT is None else rewards_NT - penalties_NT


def _scored(group: Group, *, grouped: bool) -> tuple[Trajectory, ...]:
    whole = tuple(
        t if t.reward is None or math.isfinite(t.reward) else t.replace(reward=None) for t in group.trajectories
    )
    if not grouped:
        return tuple(t for t in whole if t.reward is not None)
    left = usable([Group(task=group.task, trajectories=whole)])
    return left[0].trajectories if left else ()
