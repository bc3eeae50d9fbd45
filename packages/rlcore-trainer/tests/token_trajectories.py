"""Trajectories, segments and training sequences from lists of tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from rlcore.types import Group, Logprobs, LossMask, MediaSpan, Segment, Task, TokenIds, Trajectory, Turn
from rlcore_trainer.batching.packing import TrainingSequence


def sequence(
    token_ids: Iterable[int],
    loss_mask: Iterable[bool],
    *,
    logprobs: Iterable[float] = (),
    advantage: float | Sequence[float] = 0.0,
    **options: Any,
) -> TrainingSequence:
    """A sequence to train on; ``options`` are its other fields."""
    return TrainingSequence(
        token_ids=TokenIds(token_ids),
        loss_mask=LossMask(loss_mask),
        logprobs=Logprobs(logprobs),
        advantage=advantage if isinstance(advantage, float) else torch.tensor(advantage, dtype=torch.float64),
        **options,
    )


def segment(
    token_ids: Iterable[int],
    loss_mask: Iterable[bool],
    *,
    logprobs: Iterable[float] | None = None,
    turns: tuple[Turn, ...] | None = None,
    rewards: Iterable[float | None] = (),
    media: tuple[MediaSpan, ...] = (),
) -> Segment:
    """Tokens with a turn for each run of the mask, unless ``turns`` are given.

    ``rewards`` are those of its policy turns. Log-probabilities are -3 unless given.
    """
    ids, mask = TokenIds(token_ids), LossMask(loss_mask)
    return Segment(
        token_ids=ids,
        loss_mask=mask,
        logprobs=Logprobs([-3.0] * len(ids) if logprobs is None else logprobs),
        turns=tuple(_turns(mask, iter(rewards))) if turns is None else turns,
        media=media,
    )


def _turns(loss_mask: LossMask, rewards: Iterator[float | None]) -> Iterator[Turn]:
    start = 0
    for sampled, run in groupby(loss_mask):
        end = start + len(list(run))
        if sampled:
            yield Turn(kind="policy", start=start, end=end, messages=(), reward=next(rewards, None))
        else:
            yield Turn(kind="observation", start=start, end=end, messages=())
        start = end


def trajectory(*segments: Segment, reward: float | None = 0.0, **options: Any) -> Trajectory:
    """A trajectory of these segments; ``options`` are its other fields."""
    return Trajectory(**{"task_id": "0", "sibling": 0, "segments": segments, "reward": reward, **options})


def group(*trajectories: Trajectory) -> Group:
    """The trajectories as siblings."""
    members = tuple(one.replace(sibling=sibling) for sibling, one in enumerate(trajectories))
    return Group(task=Task(id="0", messages=()), trajectories=members)


def only_segment(one: Trajectory) -> Segment:
    """The segment of a trajectory that has one."""
    (found,) = one.segments
    return found


def with_logprobs(one: Trajectory, written: Iterable[float]) -> Trajectory:
    """A trajectory of one segment with other log-probabilities of its written tokens."""
    numbers, whole = iter(written), only_segment(one)
    logprobs = Logprobs(next(numbers) if sampled else 0.0 for sampled in whole.loss_mask)
    return one.replace(segments=(dataclasses.replace(whole, logprobs=logprobs),))
