"""A taskset of sums of two prices, with which the plugin can be tried. It needs neither files nor a network."""

# mypy: disable-error-code="import-not-found,misc,untyped-decorator,unused-ignore"

from __future__ import annotations

import random
from collections.abc import Iterator

import verifiers.v1 as vf

PRICES = {
    "apple": 2, "bread": 4, "candle": 6, "date": 3, "egg": 1, "fig": 5, "glue": 7, "honey": 9, "ink": 8,
    "jam": 4, "kale": 3, "lamp": 9, "milk": 2, "nuts": 6, "oil": 7, "pear": 1, "quill": 5, "rope": 8,
}  # fmt: skip
SEED = 7


class PriceData(vf.TaskData):
    """A question with its answer."""

    answer: str


class PriceTask(vf.Task[PriceData]):
    """Scored by the last reply."""

    @vf.reward
    async def right(self, task: PriceData, trace: vf.Trace) -> float:
        """Whether the reply is the sum."""
        return float(trace.last_reply == task.answer)

    @vf.metric
    async def off_by(self, task: PriceData, trace: vf.Trace) -> float:
        """The distance from the sum; 18 for a reply that is no number."""
        reply = trace.last_reply
        return float(abs(int(reply) - int(task.answer))) if reply.isdecimal() and len(reply) < 4 else 18.0


class PriceTaskset(vf.Taskset[PriceTask, vf.TasksetConfig]):
    """All pairs of goods, in a fixed order."""

    def load(self) -> Iterator[PriceTask]:
        """Yield the tasks."""
        pairs = [(first, second) for first in PRICES for second in PRICES]
        random.Random(SEED).shuffle(pairs)
        for first, second in pairs:
            data = PriceData(prompt=f"{first} {second}", answer=str(PRICES[first] + PRICES[second]))
            yield PriceTask(data, self.config.task)


__all__ = ["PriceTaskset"]
