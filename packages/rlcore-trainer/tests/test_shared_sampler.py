"""One sampler for all processes, with threads in place of processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rlcore.contracts import NamedTensor, WeightSource
from rlcore.errors import EngineError
from rlcore_trainer.batching.sharding import Rank
from rlcore_trainer.controller.shared_sampler import SharedSampler

NAMES = ["a", "b", "c"]


class Threads:
    """Two processes as threads."""

    def __init__(self, rank: Rank, barrier: threading.Barrier, place: list[Any]) -> None:
        self.rank, self._barrier, self._place = rank, barrier, place

    def scatter(self, values: Any) -> Any:
        if values is not None:
            self._place[0] = values
        self._barrier.wait(10)
        found = self._place[0][self.rank.index]
        self._barrier.wait(10)
        return found

    def from_main(self, make: Callable[[], Any]) -> Any:
        told: Any = None
        if self.rank.index == 0:
            try:
                told = [(make(), None)] * 2
            except EngineError as error:
                told = [(None, error)] * 2
        value, error = self.scatter(told)
        if error is not None:
            raise error
        return value


class Divided:
    """Weights of which each tensor is gathered when all processes have reached it."""

    version, folder, adapter = 7, Path("m"), None

    def __init__(self, barrier: threading.Barrier) -> None:
        self._barrier = barrier
        self.gathered = 0

    def weights(self, *, adapter_only: bool = False) -> Iterator[NamedTensor]:
        for name in NAMES:
            self._barrier.wait(10)
            self.gathered += 1
            yield NamedTensor(name, "float32", (1,), name)


class Reader:
    """A sampler that reads the weights in the way of a test."""

    def __init__(self, read: Callable[[WeightSource], int], source: WeightSource) -> None:
        self._read = read
        next(source.weights() or iter(()))  # as an engine that asks for the type of the weights

    def update_weights(self, source: WeightSource) -> int:
        return self._read(source)


def both(read: Callable[[WeightSource], int]) -> list[Any]:
    """What both processes got from a start and an update, and how many tensors each has gathered."""
    barrier, place, found = threading.Barrier(2), [None], [None, None]

    def act(index: int) -> None:
        source = Divided(barrier)
        processes: Any = Threads(Rank(index, 2), barrier, place)
        made: Any = lambda weights: Reader(read, weights)  # noqa: E731
        try:
            result: Any = SharedSampler(made, source, processes, divided=True).update_weights(source)
        except EngineError as error:
            result = str(error)
        found[index] = (result, source.gathered)

    threads = [threading.Thread(target=act, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return found


def fail(source: WeightSource) -> int:
    for one in source.weights() or ():
        raise EngineError(f"no room for {one.name}")
    return 0


@pytest.mark.parametrize(
    ("read", "result", "readings"),
    [
        (lambda source: len([*source.weights()]), 3, 2),
        (lambda source: len([*source.weights(), *source.weights()]), 6, 3),
        (lambda source: source.version, 7, 1),
        (fail, "no room for a", 2),
    ],
)
def test_all_processes_gather_what_the_main_process_reads(read: Any, result: object, readings: int) -> None:
    assert both(read) == [(result, readings * len(NAMES))] * 2
