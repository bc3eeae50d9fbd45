"""The return of an episode, as the agent reported it."""

from __future__ import annotations

from rlcore.types import RewardResult, Stop, Task, Trajectory


def harness_return(trajectory: Trajectory, task: Task) -> RewardResult | float:
    """The sum of the rewards that the agent returned or reported.

    Without any, an episode that used up its turns or its context scores 0, because the agent could not finish. Another
    one is not scored.
    """
    reported = trajectory.metrics.get("step_reward")
    if reported is not None:
        return reported
    if trajectory.stop in (Stop.MAX_TURNS, Stop.LENGTH):
        return 0.0
    error = "the agent reported no reward: return a number, call policy.reward, or use another reward"
    return RewardResult(value=None, error=error, error_kind="not reported")
