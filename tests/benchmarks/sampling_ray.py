"""A step with two workers of Ray on this machine against a step with the local sampler.

64 rollouts of the calculator environment, whose tasks arrive after 0.2 to 2 s, and an update of the built-in model of
the default recipe. The start of Ray and the first step are not measured.
"""

from __future__ import annotations

from _waiting_tools import VERSIONS as SHARED
from _waiting_tools import steps_of
from comparison import Comparison

VERSIONS = (*SHARED, "ray")
STEPS, SMOKE_STEPS = 6, 2


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """Steps after the first one."""
    count = SMOKE_STEPS if smoke else STEPS

    def ours() -> float:
        rows = steps_of(count, sampler={"id": "ray", "workers": 2, "address": "local"})
        return sum(row["time/step_s"] for row in rows[1:])

    def peer() -> float:
        return sum(row["time/step_s"] for row in steps_of(count)[1:])

    return [Comparison(name="waiting-tools", ours=ours, peer=peer, floor=0.95)]
