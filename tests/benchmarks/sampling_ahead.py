"""A step with ``schedule.ahead=1`` against the ideal, in which sampling and update overlap in full.

64 rollouts of the calculator environment, whose tasks arrive after 0.2 to 2 s, and an update of the built-in model of
the default recipe. The ideal is the time of a step that samples and then trains, times the share of its longer part.
"""

from __future__ import annotations

from _waiting_tools import VERSIONS as VERSIONS
from _waiting_tools import steps_of
from comparison import Comparison

STEPS, SMOKE_STEPS = 7, 3


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """The mean of the steps that overlap: the first one has nothing to overlap with, the last one nothing to sample."""
    count = SMOKE_STEPS if smoke else STEPS

    def ours() -> float:
        return sum(row["time/step_s"] for row in steps_of(count, schedule={"ahead": 1})[1:-1])

    def ideal() -> float:
        rows = steps_of(count)[1:-1]
        parts = [sum(row[name] for row in rows) for name in ("time/rollout_s", "time/update_s")]
        return sum(row["time/step_s"] for row in rows) * max(parts) / sum(parts)

    return [Comparison(name="waiting-tools", ours=ours, peer=ideal, floor=0.9)]
