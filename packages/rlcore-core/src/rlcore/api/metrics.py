"""The metrics of a run, by name and step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcore.api.frames import pandas_frame, polars_frame

if TYPE_CHECKING:
    import pandas
    import polars

ABOUT = frozenset({"step", "time"})
"""Keys of a row that are no metrics."""


class Metrics(Mapping[str, Mapping[int, float]]):
    """The values of each metric by step: ``metrics["reward/mean"][10]``. Steps without a finite value are left out.

    Attributes:
        rows: one row per step with all its values, as in ``metrics.jsonl``; ``time`` is in seconds since 1970
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows = tuple(rows)
        self._values: dict[str, dict[int, float]] = {}
        for row in self.rows:
            for name, value in row.items():
                if name not in ABOUT and value is not None:
                    self._values.setdefault(name, {})[row["step"]] = value

    def __getitem__(self, name: str) -> Mapping[int, float]:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Metrics({len(self)} metrics of {len(self.rows)} steps)"

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a data frame with the step as index. Raises `NotInstalledError` without pandas."""
        return pandas_frame(self.rows, index="step")

    def to_polars(self) -> polars.DataFrame:
        """The rows as a data frame. Raises `NotInstalledError` without polars."""
        return polars_frame(self.rows)


__all__ = ["Metrics"]
