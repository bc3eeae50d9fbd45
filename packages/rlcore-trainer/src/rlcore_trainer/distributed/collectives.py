"""Collective operations between the processes of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from torch import Tensor

from rlcore_trainer.batching.sequence_metrics import Rows, joined_metrics
from rlcore_trainer.batching.sharding import SINGLE_RANK, Rank
from rlcore_trainer.batching.team import Team

Value = TypeVar("Value")


class Processes(ABC):
    """Collective operations. All processes must call the same methods in the same order."""

    rank: Rank
    """Rank of this process and the number of processes."""
    team: Team | None = None
    """The processes that compute each micro-batch together; None if each computes its own."""

    @abstractmethod
    def exchange(self, value: Value) -> list[Value]:
        """Return the values of all processes, ordered by rank."""

    @abstractmethod
    def scatter(self, values: Sequence[Value] | None) -> Value:
        """Send a value to each process; only the main process provides them."""

    @abstractmethod
    def gather(self, value: Value) -> list[Value]:
        """Return the values of all processes in the main process, ordered by rank, and an empty list in the others."""

    @abstractmethod
    def from_main(self, make: Callable[[], Value]) -> Value:
        """Return the result of ``make`` in the main process; see `rlcore.session.processes.Processes.from_main`."""

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


class OneProcess(Processes):
    """A single process, without communication."""

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
