"""The scored trajectories of a rollout as arrays, the input for advantage estimation.

Axes: ``N`` the scored trajectories; ``T`` the tokens that the policy wrote, counted from the first one of each
trajectory over all its segments in order, and padded on the right. T excludes tokens that the policy did not write, so
no estimator discounts through them. Each segment is a separate sequence and has a slice of its trajectory's T axis.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from rlcore.types import Group, Stop, Trajectory, derive_seed
from torch import Tensor

from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.algorithms.losses.shaping import overlong_penalty
from rlcore_trainer.batching.filtering import usable
from rlcore_trainer.batching.reward_values import RewardWeights, reward_values
from rlcore_trainer.batching.sequence import TrainingSequence
from rlcore_trainer.batching.sequence_metrics import Rows
from rlcore_trainer.batching.turns import TurnReward, placed, turn_rewards, written_turns


class Part(NamedTuple):
    """The location of a sequence on the axes N and T."""

    trajectory: int
    """Index on the axis N."""
    written: slice
    """Slice of its written tokens on the axis T."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """N scored trajectories. Per-trajectory values are float64."""

    sequences: tuple[TrainingSequence, ...]
    """One sequence per segment, in trajectory order, without advantages."""
    parts: tuple[Part, ...]
    """The location of each sequence."""
    rewards_N: Tensor
    """The training rewards: scores and turn rewards according to ``algorithm.turn_rewards``, minus penalties, shuffled
    in a control experiment. Always finite."""
    outcomes_N: Tensor
    """The part of ``rewards_N`` assigned to the last written token."""
    turn_rewards: tuple[tuple[TurnReward, ...], ...]
    """The rest of ``rewards_N``: the turn rewards of each trajectory; empty if ``algorithm.turn_rewards = "none"``."""
    groups_N: Tensor
    """The index of each trajectory's group in the rollout, int64."""
    compared_N: Tensor
    """A label for the trajectories that are compared with each other, those of the same group and role, int64."""
    lengths_N: Tensor
    """Number of tokens that the policy wrote, int64."""
    turns_NT: Tensor
    """The policy turn of each written token, counted from 0 over all segments; -1 on padding; int64."""
    baselines_N: Tensor
    """The score of the greedy answer to each trajectory's task; NaN if none was requested."""
    siblings: tuple[int, ...]
    """The index of each trajectory among those of its group."""
    learnt_N: Tensor
    """False for trajectories that count in the statistics but not in the loss."""
    metrics: Mapping[str, float]
    reward_values_NR: Tensor | None = None
    """See `AdvantageInputs`; None if no weights were given."""
    reward_weights_NR: Tensor | None = None

    @classmethod
    def of(
        cls,
        groups: Sequence[Group],
        algorithm: AlgorithmConfig,
        *,
        max_response_tokens: int,
        key: Sequence[object],
        grouped: bool = True,
        baselines: Mapping[tuple[int, str], float] | None = None,
        reward_weights: RewardWeights | None = None,
    ) -> Experience:
        """Create the experience from the trajectories of a rollout that have a finite score.

        Args:
            groups: the rollout
            algorithm: provides ``turn_rewards``, ``overlong`` and ``shuffle_rewards``
            max_response_tokens: the length at which the penalty for long answers reaches its maximum
            key: seed components for the order of shuffled rewards
            grouped: omit a trajectory that is the only one left in its group after failures, because it has no
                siblings to compare with
            baselines: the score of the greedy answer by group index and role; trajectories without one are omitted and
                counted
            reward_weights: of the run, to keep the values of single rewards
        """
        members: list[tuple[int, Trajectory]] = []
        without_baseline = 0
        for index, group in enumerate(groups):
            scored = scored_of(group, grouped=grouped, with_turns=algorithm.turn_rewards != "none")
            kept = [one for one in scored if baselines is None or (index, one.role) in baselines]
            without_baseline += len(scored) - len(kept)
            members += [(index, trajectory) for trajectory in kept]
        trajectories = [trajectory for _, trajectory in members]
        lengths_N = torch.tensor([t.sampled_tokens for t in trajectories], dtype=torch.long)
        outcomes_N = torch.tensor([t.reward for t in trajectories], dtype=torch.float64)
        of_turns: list[tuple[TurnReward, ...]] = [() for _ in trajectories]
        if algorithm.turn_rewards != "none":
            of_turns = [turn_rewards(trajectory) for trajectory in trajectories]
        if algorithm.turn_rewards == "only":
            outcomes_N = torch.zeros_like(outcomes_N)
        scores_N, values_NR, weights_NR = outcomes_N, None, None
        if reward_weights is not None:
            environments = [groups[index].task.environment for index, _ in members]
            values_NR, weights_NR = reward_values(trajectories, environments, reward_weights)
            values_NR = torch.zeros_like(values_NR) if algorithm.turn_rewards == "only" else values_NR
        metrics: dict[str, float] = {}
        if baselines is not None:
            metrics["baselines/missing"] = float(without_baseline)
        overlong = algorithm.overlong
        if overlong.buffer and trajectories:
            penalty_N = overlong_penalty(
                lengths_N, max_response_tokens=max_response_tokens, buffer=overlong.buffer, penalty=overlong.penalty
            ).to(torch.float64)
            outcomes_N = outcomes_N - penalty_N
            metrics["overlong/penalty"] = float(penalty_N.mean())
        if algorithm.shuffle_rewards:
            # Penalties are shuffled too; otherwise they would be a learning signal about length.
            order = list(range(len(trajectories)))
            random.Random(derive_seed("shuffle", *key)).shuffle(order)
            outcomes_N, of_turns, scores_N = outcomes_N[order], [of_turns[i] for i in order], scores_N[order]
            if values_NR is not None and weights_NR is not None:
                values_NR, weights_NR = values_NR[order], weights_NR[order]
        learnt = [True] * len(trajectories)
        if overlong.mask_truncated:
            learnt = [trajectory.stop is not Stop.LENGTH for trajectory in trajectories]
            metrics["truncated/masked"] = float(learnt.count(False))
        roles = [(index, trajectory.role) for index, trajectory in members]
        labels = {role: label for label, role in enumerate(dict.fromkeys(roles))}
        known = baselines or {}
        sums_N = torch.tensor([sum(one.reward for one in of) for of in of_turns], dtype=torch.float64)
        rewards_N = outcomes_N + sums_N if algorithm.turn_rewards != "none" else outcomes_N
        if values_NR is not None:
            values_NR[:, -1] += rewards_N - scores_N
        sequences, parts = _sequences(trajectories)
        return cls(
            sequences=sequences,
            parts=parts,
            rewards_N=rewards_N,
            outcomes_N=outcomes_N,
            turn_rewards=tuple(of_turns),
            groups_N=torch.tensor([index for index, _ in members], dtype=torch.long),
            compared_N=torch.tensor([labels[role] for role in roles], dtype=torch.long),
            lengths_N=lengths_N,
            turns_NT=torch.nn.utils.rnn.pad_sequence(
                [written_turns(trajectory) for trajectory in trajectories], batch_first=True, padding_value=-1
            )
            if trajectories
            else torch.empty(0, 0, dtype=torch.long),
            baselines_N=torch.tensor([known.get(role, math.nan) for role in roles], dtype=torch.float64),
            siblings=tuple(trajectory.sibling for trajectory in trajectories),
            learnt_N=torch.tensor(learnt, dtype=torch.bool),
            metrics=metrics,
            reward_values_NR=values_NR,
            reward_weights_NR=weights_NR,
        )

    def __len__(self) -> int:
        return len(self.rewards_N)

    @property
    def trained(self) -> list[int]:
        """Indices of the trajectories with tokens in the loss."""
        return [i for i, learnt in enumerate(self.learnt_N.tolist()) if learnt and int(self.lengths_N[i])]

    def sequences_of(self, trajectories: Iterable[int]) -> list[int]:
        """Return the indices of the sequences of ``trajectories`` that have written tokens, in ascending order."""
        chosen = set(trajectories)
        return [i for i, part in enumerate(self.parts) if part.trajectory in chosen and self.sequences[i].trained]

    @property
    def mask_NT(self) -> Tensor:
        """True for written tokens, False for padding."""
        width = int(self.lengths_N.max()) if len(self) else 0
        return torch.arange(width)[None] < self.lengths_N[:, None]

    def padded(self, rows: Rows) -> Tensor:
        """Return the values of some sequences' written tokens as a padded tensor, float64 [N, T]; zero elsewhere."""
        padded_NT = torch.zeros(self.mask_NT.shape, dtype=torch.float64)
        for i, row in rows.items():
            padded_NT[self.parts[i].trajectory, self.parts[i].written] = row.to(padded_NT)
        return padded_NT

    @property
    def left_states(self) -> dict[int, TrainingSequence]:
        """The states in which trajectories were cut short, by index of the trajectory; see `TrainingSequence`."""
        found = ((part.trajectory, one.left_state) for one, part in zip(self.sequences, self.parts, strict=True))
        return {trajectory: state for trajectory, state in found if state is not None}

    def rows(self, numbers_NT: Tensor) -> Rows:
        """Return the values of the written tokens by sequence. The inverse of `padded`."""
        return {i: numbers_NT[part.trajectory, part.written] for i, part in enumerate(self.parts)}

    def with_advantages(self, advantages: Tensor) -> list[TrainingSequence]:
        """Return the sequences with advantages set, given per trajectory [N] or per token [N, T]."""
        if advantages.ndim == 1:
            numbers = advantages.tolist()
            return [
                replace(sequence, advantage=numbers[part.trajectory])
                for sequence, part in zip(self.sequences, self.parts, strict=True)
            ]
        rows = self.rows(advantages.double().cpu())
        return [replace(sequence, advantage=rows[i]) for i, sequence in enumerate(self.sequences)]

    def token_rewards(self, penalties_NT: Tensor | None = None) -> Tensor:
        """Return the reward of each token, minus its penalty, [N, T].

        The reward of a turn is assigned to its last written token, and the score to the last written token of the
        trajectory. The reward of a turn without written tokens is assigned to the last written token before the turn,
        or to the first token if there is none.
        """
        rewards_NT = torch.zeros(self.mask_NT.shape, dtype=torch.float64)
        written_N = torch.nonzero(self.lengths_N)[:, 0]
        rewards_NT[written_N, self.lengths_N[written_N] - 1] = self.outcomes_N[written_N]
        for i in written_N.tolist():
            for place, reward in placed(self.turn_rewards[i], self.turns_NT[i, : int(self.lengths_N[i])]):
                rewards_NT[i, place] += reward
        return rewards_NT if penalties_NT is None else rewards_NT - penalties_NT


def _sequences(trajectories: Sequence[Trajectory]) -> tuple[tuple[TrainingSequence, ...], tuple[Part, ...]]:
    """Return a sequence for each segment, with its location."""
    sequences: list[TrainingSequence] = []
    parts: list[Part] = []
    for i, trajectory in enumerate(trajectories):
        end, alone = 0, len(trajectory.segments) == 1
        for segment in trajectory.segments:
            start, end = end, end + segment.sampled_tokens
            sequences.append(TrainingSequence.of(segment, alone=alone, images=trajectory.images))
            parts.append(Part(i, slice(start, end)))
    return tuple(sequences), tuple(parts)


def scored_of(group: Group, *, grouped: bool, with_turns: bool) -> tuple[Trajectory, ...]:
    """Return the trajectories of a group that count in the updates; none if it has too few."""
    whole = tuple(t if _is_finite(t, with_turns) else t.replace(reward=None) for t in group.trajectories)
    if not grouped:
        return tuple(t for t in whole if t.reward is not None)
    left = usable([Group(task=group.task, trajectories=whole)])
    return left[0].trajectories if left else ()


def _is_finite(trajectory: Trajectory, with_turns: bool) -> bool:
    """Return whether all rewards used for training are finite."""
    rewards = [trajectory.reward, trajectory.turn_reward if with_turns else None]
    return all(math.isfinite(reward) for reward in rewards if reward is not None)
