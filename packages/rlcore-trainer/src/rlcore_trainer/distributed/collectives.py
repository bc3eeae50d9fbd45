"""Collective operations that follow from an exchange of values between all processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from torch import Tensor

from rlcore_trainer.batching.sequence_metrics import Rows, joined_metrics
from rlcore_trainer.batching.sharding import SINGLE_RANK, Rank

Value = TypeVar("Value")


class Collectives(ABC):
    """The part of `rlcore_trainer.distributed.strategy.Processes` that `exchange` suffices for."""

    rank: Rank

    @abstractmethod
    def exchange(self, value: Value) -> list[Value]:
        """Return the values of all processes, ordered by rank."""

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the sums over all processes. A name that a process lacks counts as 0 there."""
        everybody = self.exchange(dict(values))
        names = {name: None for found in everybody for name in found}
        return {name: sum(found[name] for found in everybody if name in found) for name in names}

    def max(self, value: float) -> float:
        """Return the largest value of all processes."""
        return max(self.exchange(value))

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """Join the totals of `rlcore_trainer.batching.sequence_metrics.add_metrics` of all processes."""
        return joined_metrics(self.exchange(dict(totals)))

    def union(self, rows: Rows) -> Rows:
        """Merge the rows of all processes, each of which has different ones, on the device of this process's rows."""
        here: dict[int, Tensor] = dict(rows)
        if self.rank.world_size > 1:
            device = next((row.device for row in rows.values()), None)
            for found in self.exchange({i: row.detach().cpu() for i, row in rows.items()}):
                here |= {i: row.to(device) for i, row in found.items() if i not in here}
        return {i: here[i] for i in sorted(here)}

    def any(self, here: bool) -> bool:
        """Return whether the value is true in any process."""
        return any(self.exchange(here))


class OneProcess(Collectives):
    """A `rlcore_trainer.distributed.strategy.Processes` of a single process."""

    rank = SINGLE_RANK

    def exchange(self, value: Value) -> list[Value]:
        """Return the value of the only process."""
        return [value]

    def scatter(self, values: Sequence[Value] | None) -> Value:
        """Return the value for the only process."""
        assert values is not None
        return values[0]

    def gather(self, value: Value) -> list[Value]:
        """Return the value of the only process."""
        return [value]

    def from_main(self, make: Callable[[], Value]) -> Value:
        """Return the result of ``make``."""
        return make()

    def agreed(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing."""
        return nullcontext()
