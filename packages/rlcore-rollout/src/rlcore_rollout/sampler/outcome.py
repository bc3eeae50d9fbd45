"""What a sampler reports: the progress of a rollout, and trajectories without a reward."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.episodes.not_scored import not_scored_sentence
from rlcore.errors import EngineError
from rlcore.runs.progress import Meter, Report
from rlcore.types import Boundary, RolloutRequest, Trajectory


def rollout_meter(request: RolloutRequest, report: Report) -> Meter:
    """The meter of the trajectories of a request."""
    phase = "rollout" if request.purpose == "train" else request.purpose
    return report.progress(phase, len(request.tasks) * request.group_size, "trajectory")


def report_outcome(trajectories: Sequence[Trajectory], report: Report) -> None:
    """Report trajectories without a reward. Raises as `require_engine`."""
    require_engine(trajectories)
    if sentence := not_scored_sentence(trajectories):
        report.say(sentence)


def require_engine(trajectories: Sequence[Trajectory]) -> None:
    """Raise `EngineError` if the engine failed in every trajectory."""
    failures = [one.failure for one in trajectories if one.failure and one.failure.boundary is Boundary.ENGINE]
    if failures and len(failures) == len(trajectories):
        raise EngineError(f"the engine failed in all {len(trajectories)} trajectories: {failures[0].message}")
