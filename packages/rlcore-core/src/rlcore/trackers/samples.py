"""Trajectories as a table, which trackers show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore.console.escaping import printable
from rlcore.images import side_by_side
from rlcore.redaction import redact
from rlcore.types import Group, Trajectory

EVERY = 10
"""Training steps between samples. Neighbouring steps look alike, and services keep each table as a file."""
LONGEST = 10_000
"""Maximum number of characters of a text in a table."""
MOST_IMAGES = 4
"""The last images of a trajectory that are shown."""
BEFORE = ("step", "task", "sibling", "prompt", "conversation", "answer", "reward")
AFTER = ("stop", "tokens")
"""Columns before and after those of the rewards, such as ``reward/math-numeric-equal``."""
IMAGES = "images"
"""The last column, if there are images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTable:
    """Trajectories, one in each row, from the best to the worst."""

    columns: list[str]
    rows: list[list[Any]]


def is_sampled(step: int, purpose: str) -> bool:
    """Whether the trajectories of a step are shown: all evaluations, and some steps of training."""
    return purpose == "evaluation" or step % EVERY == 0


def samples(groups: Iterable[Group], count: int) -> list[Trajectory]:
    """At most ``count`` trajectories in order of their rewards: the best, the worst, and some in between.

    Those without a reward count as the worst.
    """
    every = [one for group in groups for one in group.trajectories]
    ranked = sorted(every, key=lambda one: float("-inf") if one.reward is None else one.reward, reverse=True)
    count, last = min(count, len(ranked)), len(ranked) - 1
    return [ranked[place * last // max(1, count - 1)] for place in range(count)]


def pictures(trajectories: Iterable[Trajectory]) -> list[bytes | None]:
    """The last images of each trajectory next to each other, as a PNG; None without images."""
    return [side_by_side([*one.images.values()][-MOST_IMAGES:]) if one.images else None for one in trajectories]


def sample_table(step: int, trajectories: Sequence[Trajectory], images: Sequence[Any] = ()) -> SampleTable:
    """The table of trajectories of a step, and a cell with the images of each one, unless none has images."""
    rewards = list(dict.fromkeys(name for one in trajectories for name in one.rewards))
    columns = [*BEFORE, *(f"reward/{printable(name)}" for name in rewards), *AFTER]
    rows = [_row(step, one, rewards) for one in trajectories]
    if any(cell is not None for cell in images):
        columns.append(IMAGES)
        rows = [[*row, cell] for row, cell in zip(rows, images, strict=True)]
    return SampleTable(columns=columns, rows=rows)


def _row(step: int, one: Trajectory, rewards: Sequence[str]) -> list[Any]:
    first = next((number for number, turn in enumerate(one.turns) if turn.kind == "policy"), len(one.turns))
    prompt, conversation = (
        "\n\n".join(f"{message.role}: {message.text}" for turn in turns for message in turn.messages)
        for turns in (one.turns[:first], one.turns[first:])
    )
    values = [one.rewards[name].value if name in one.rewards else None for name in rewards]
    stop = str(one.stop if one.failure is None else one.failure)
    texts = map(shown, (prompt, conversation, one.final_response))
    return [step, shown(one.task_id), one.sibling, *texts, one.reward, *values, shown(stop), one.sampled_tokens]


def shown(text: str) -> str:
    """A text without secrets, cut, with escapes for everything invisible except line breaks."""
    return "\n".join(map(printable, redact(text)[:LONGEST].split("\n")))  # a secret may span lines and the cut


__all__ = ["EVERY", "IMAGES", "SampleTable", "is_sampled", "pictures", "sample_table", "samples"]
