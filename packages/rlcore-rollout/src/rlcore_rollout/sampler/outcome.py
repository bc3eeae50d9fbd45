"""What a sampler reports: the progress of a rollout, and trajectories without a reward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rlcore.console.wording import counted
from rlcore.errors import EngineError
from rlcore.runs.progress import Meter, Report
from rlcore.types import Boundary, RolloutRequest, Trajectory


def rollout_meter(request: RolloutRequest, report: Report) -> Meter:
    """The meter of the trajectories of a request."""
    phase = "rollout" if request.purpose == "train" else request.purpose
    return report.progress(phase, len(request.tasks) * request.group_size, "trajectory")


def report_outcome(trajectories: Sequence[Trajectory], report: Report) -> None:
    """Report trajectories without a reward. Raises `EngineError` if the engine failed in every trajectory."""
    failures = [one.failure for one in trajectories if one.failure and one.failure.boundary is Boundary.ENGINE]
    if failures and len(failures) == len(trajectories):
        raise EngineError(f"the engine failed in all {len(trajectories)} trajectories: {failures[0].message}")
    if sentence := not_scored_sentence(trajectories):
        report.say(sentence)


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
