"""What a step leaves about its groups and tokens, as `rlcore.abilities.KeepsEvidence` stores it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from rlcore.rollouts.evidence import SEQUENCE
from rlcore.rollouts.index import Row, rows_of
from rlcore.types import Group, NumberArray, derive_seed
from torch import Tensor

from rlcore_trainer.batching.experience import Experience
from rlcore_trainer.batching.packing import TrainingSequence
from rlcore_trainer.batching.sequence_metrics import Rows
from rlcore_trainer.controller.selection import Collected

LARGEST = float(torch.finfo(torch.float16).max)


class TrainedTokens(NamedTuple):
    """Values of the trained tokens of a step."""

    sequences: Sequence[tuple[int, int, int, int]]
    """The group, the sibling, the segment and the number of trained tokens of each sequence."""
    columns: Mapping[str, Tensor]
    """By the names of `rlcore.rollouts.evidence.Tokens`, on the CPU."""


def trained_tokens(
    experience: Experience,
    sequences: Sequence[TrainingSequence],
    first: Rows,
    last: Rows,
    known: Mapping[str, Rows],
    *,
    share: float,
    key: Sequence[object],
    distillation: float = 0.0,
) -> TrainedTokens | None:
    """Return the values of a share of the trained trajectories; None if there are none.

    The log-probability is stored in float32, because it is compared with that of the engine, and everything else in
    float16: two bytes a token. If all six columns exist, it is float16 as well, so that a token takes 12 bytes.

    Args:
        experience: the rollout
        sequences: its sequences with advantages
        first: log-probability and entropy of each sequence in its first update [2, T]
        last: the same in its last update; equal to ``first`` if there is one update
        known: log-probabilities before the first update, of the reference and of the teacher, and values, if they were
            computed
        share: the share
        key: of the choice of the trajectories
        distillation: coefficient of the teacher's part of the advantages
    """
    places: list[tuple[int, int, int, int]] = []
    chosen: list[int] = []
    segments: dict[int, int] = {}
    for i, part in enumerate(experience.parts):
        segment = segments[part.trajectory] = segments.get(part.trajectory, -1) + 1
        group, sibling = int(experience.groups_N[part.trajectory]), experience.siblings[part.trajectory]
        if i in first and (share >= 1 or derive_seed("evidence", *key, group, sibling) < share * 2**63):
            places.append((group, sibling, segment, sequences[i].trained))
            chosen.append(i)
    if not chosen:
        return None
    taken = torch.cat([first[i] for i in chosen], dim=1)
    rows = {name: torch.cat([of[i].float().cpu() for i in chosen]) for name, of in known.items() if chosen[0] in of}
    logprob = rows.get("old", taken[0])
    columns = {"advantage": torch.cat([_advantages(sequences[i]) for i in chosen]), "entropy": taken[1]}
    if "teacher" in rows:
        columns["advantage"] = columns["advantage"] + distillation * (rows["teacher"][:, 0] - logprob)
    if last is not first:
        columns["log_ratio"] = torch.cat([last[i][0] for i in chosen]) - logprob
    if "reference" in rows:
        columns["reference_logprob"] = rows["reference"]
    if "values" in rows:
        columns["value"] = rows["values"]
    small = {name: column.clamp(-LARGEST, LARGEST).half() for name, column in columns.items()}
    return TrainedTokens(places, {"logprob": logprob.half() if len(small) == 5 else logprob, **small})


def _advantages(sequence: TrainingSequence) -> Tensor:
    advantage = sequence.advantage
    return advantage.float() if isinstance(advantage, Tensor) else torch.full((sequence.trained,), advantage)


def token_columns(tokens: TrainedTokens, origins: Sequence[tuple[int, int]]) -> dict[str, NumberArray]:
    """Return the columns of a file. ``origins`` has the step and the number of each group of the step."""
    rows = [(*origins[group], sibling, segment, count) for group, sibling, segment, count in tokens.sequences]
    places = zip(SEQUENCE, torch.tensor(rows, dtype=torch.int32).T.contiguous(), strict=True)
    return {name: NumberArray.of(column.numpy()) for name, column in (*places, *tokens.columns.items())}


def described(
    rollout: Collected, *, step: int, version: int, too_few: Callable[[Group], bool]
) -> tuple[list[dict[str, Any]], list[Row]]:
    """Return what became of the groups of a step, for the index of its rollouts.

    Args:
        rollout: the groups
        step: the step
        version: version of the policy that the step updates
        too_few: whether the updates leave out a group because too few of its trajectories are scored

    Returns:
        A note for each sampled group, and the rows of groups that were carried over to this step.
    """
    trained = dict(zip(rollout.origins, rollout.groups, strict=True))
    notes: list[dict[str, Any]] = []
    for place, (group, fate) in enumerate(zip(rollout.sampled, rollout.fates, strict=True)):
        used = trained.get((step, place))
        if used is not None and too_few(used):
            notes.append({"fate": "dropped", "why": "not_scored", "excluded": fate.excluded})
        else:
            note = {"fate": fate.kind, **({"why": fate.why} if fate.why else {}), "excluded": fate.excluded}
            notes.append(note | (_training(group, step, version) if used is not None else {}))
    brought = [
        row
        for (origin, place), group in trained.items()
        if origin != step
        for row in rows_of(
            group,
            {"purpose": "train", "step": origin, "group": place},
            {"fate": "kept", **_training(group, step, version)},
            {},
        )
    ]
    return notes, brought


def _training(group: Group, step: int, version: int) -> dict[str, int]:
    """The step and the version of the policy in which a group is trained, and how many updates it is behind."""
    oldest = version if group.oldest_version is None else group.oldest_version
    return {"trained_step": step, "trained_version": version, "staleness": version - oldest}


__all__ = ["TrainedTokens", "described", "token_columns", "trained_tokens"]
