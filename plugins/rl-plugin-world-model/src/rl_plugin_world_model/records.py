"""An episode of a phase as a trajectory of the run: what was seen, done and predicted, and the terms of the reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rlcore.types import (
    Group,
    Logprobs,
    LossMask,
    NumberArray,
    RewardResult,
    Segment,
    Stop,
    Task,
    TokenIds,
    Trajectory,
    Turn,
)
from rlcore_control.episodes import Episode

from rl_plugin_world_model.journal import Picture, missing
from rl_plugin_world_model.notes import TERM

LARGEST_SIDE = 128
"""Pictures with longer sides are thinned out: a run stores hundreds of episodes."""


def group_of(
    episode: Episode,
    *,
    target: str,
    predicted: Sequence[Picture | None],
    errors: Sequence[float],
    terms: Mapping[str, tuple[float, Sequence[float]]],
) -> Group:
    """An episode as a group of its own. All arrays have a row for each step, and one for the final observation.

    Args:
        episode: the episode
        target: the observation whose next frame is predicted
        predicted: the prediction of the frame after each step; None if it failed
        errors: of these predictions
        terms: weights and values of the terms of the reward, by name, which may be padded; empty without an explorer
    """
    length = len(episode)
    terms = {name: (weight, values[:length]) for name, (weight, values) in terms.items()}
    rewards = sum((weight * np.asarray(values) for weight, values in terms.values()), np.zeros(length))
    rewards = rewards if terms else episode.rewards_T
    arrays = {f"observation/{name}": _thinned(rows) for name, rows in episode.observations.items()}
    height, width = episode.observations[target].shape[1:3]
    frames = [missing(height, width) if one is None else one for one in (None, *predicted)]
    arrays |= {
        f"predicted/{target}": _thinned(np.stack(frames)),
        "action": _with_end(episode.actions),
        "prediction error": _with_end(np.asarray(errors, np.float32)),
    }
    arrays |= {f"{TERM}{name}": _with_end(np.asarray(values, np.float32)) for name, (_, values) in terms.items()}
    turns = [Turn(kind="policy", start=t, end=t + 1, messages=(), reward=float(rewards[t])) for t in range(length)]
    segment = Segment(
        token_ids=TokenIds.zeros(length + 1),
        loss_mask=LossMask([t < length for t in range(length + 1)]),
        logprobs=Logprobs([*map(float, episode.stored.get("logprob", np.zeros(length))), 0.0]),
        turns=(*turns, Turn(kind="observation", start=length, end=length + 1, messages=())),
        arrays={name: NumberArray.of(np.ascontiguousarray(rows)) for name, rows in arrays.items()},
    )
    weights = {name: weight for name, (weight, _) in terms.items()}
    fields = {"seed": episode.seed, **({"terms": weights} if weights else {})}
    means = {name: float(np.mean(values)) for name, (_, values) in terms.items()}
    trajectory = Trajectory(
        task_id=str(episode.number),
        sibling=0,
        segments=(segment,),
        stop=Stop.DONE if episode.terminated else Stop.MAX_TURNS,
        reward=float(rewards.sum()),
        rewards={"explorer": RewardResult(value=float(rewards.sum()), components=means)} if terms else {},
        metrics={
            "steps": float(length),
            "prediction_error": float(np.mean(errors)),
            "success": float(bool(episode.success)),
        },
    )
    instruction = {"instruction": episode.instruction} if episode.instruction else {}
    return Group(
        task=Task(id=str(episode.number), messages=(), fields=fields | instruction), trajectories=(trajectory,)
    )


def _with_end(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rows of steps, with zeros for the final observation."""
    return np.concatenate([rows, np.zeros_like(rows[:1])])


def _thinned(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rows of pictures with sides of at most `LARGEST_SIDE`; others are unchanged."""
    if rows.ndim != 4:
        return rows
    every = -(-max(rows.shape[1:3]) // LARGEST_SIDE)
    return rows[:, ::every, ::every]


__all__ = ["group_of"]
