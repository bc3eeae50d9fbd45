"""The datasets of several environments as one, whose tasks name their environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from rlcore.abilities import CountsSkipped, DemonstrationDataset
from rlcore.contracts import Dataset
from rlcore.errors import DataError
from rlcore.models.tokenizer_texts import texts_of
from rlcore.types import Demonstration, Task, derive_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The dataset of one environment."""

    name: str
    """The name of the environment."""
    weight: float
    """Its share of the demonstrations, relative to the others."""
    dataset: Dataset


class MixedDataset:
    """All tasks of all parts, in the order of the environments. Ids are unique only within an environment."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        self._tasks: dict[str, Sequence[Task]] = {}

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split, each with the name of its environment."""
        if split not in self._tasks:
            named = ([replace(task, environment=one.name) for task in one.dataset.tasks(split)] for one in self.parts)
            self._tasks[split] = list(chain.from_iterable(named))
        return self._tasks[split]

    def skipped(self, split: str) -> int:
        """The number of skipped rows of all parts that count them."""
        return sum(one.dataset.skipped(split) for one in self.parts if isinstance(one.dataset, CountsSkipped))

    def texts(self) -> Iterator[str]:
        """The texts of all parts, for a tokenizer."""
        return chain.from_iterable(texts_of(one.dataset) for one in self.parts)

    def demonstrations(self, count: int, *, seed: int) -> Iterator[Demonstration]:
        """Demonstrations of all parts that have a weight, interleaved by their weights.

        Raises:
            DataError: a part has no demonstrations.
        """
        drawn = [one for one in self.parts if one.weight]
        for one in drawn:
            if not isinstance(one.dataset, DemonstrationDataset):
                raise DataError(
                    f"the environment {one.name!r} has no demonstrations",
                    found=f"its dataset {type(one.dataset).__name__} provides none",
                    where="warmup.steps",
                    fix="set warmup.steps=0, or use another dataset",
                )
        streams = [iter(_demonstrations(one, count, seed)) for one in drawn]
        total, credit = sum(one.weight for one in drawn), [0.0] * len(drawn)
        for _ in range(count):
            credit = [value + one.weight / total for value, one in zip(credit, drawn, strict=True)]
            chosen = max(range(len(drawn)), key=lambda n: credit[n])
            credit[chosen] -= 1
            demonstration = next(streams[chosen], None)
            if demonstration is None:
                return
            yield demonstration


def _demonstrations(part: Part, count: int, seed: int) -> Iterable[Demonstration]:
    assert isinstance(part.dataset, DemonstrationDataset)
    return part.dataset.demonstrations(count, seed=derive_seed(seed, part.name))


__all__ = ["MixedDataset", "Part"]
