"""Why trajectories have no reward, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rlcore.console.wording import counted
from rlcore.types import Trajectory


def not_scored_sentence(trajectories: Sequence[Trajectory]) -> str | None:
    """The number of trajectories without a reward, with reasons and the first error of each; None when all have one."""
    lost = [trajectory for trajectory in trajectories if trajectory.reward is None]
    if not lost:
        return None
    counts = Counter(_reason(trajectory) for trajectory in lost)
    first = {_reason(trajectory): trajectory.failure for trajectory in reversed(lost)}
    kinds = []
    for reason, count in counts.most_common():
        failure = first[reason]
        kinds.append(f"{count} {reason}" if failure is None else f"{count} {reason} (first: {failure.message})")
    was = "was" if len(lost) == 1 else "were"
    return f"{len(lost)} of {counted(len(trajectories), 'trajectory')} {was} not scored: {'; '.join(kinds)}"


def _reason(trajectory: Trajectory) -> str:
    """The reason why a trajectory is not scored, as one word."""
    return str(trajectory.stop if trajectory.failure is None else trajectory.failure.boundary)


__all__ = ["not_scored_sentence"]
