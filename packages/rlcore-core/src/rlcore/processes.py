"""The processes that train one run together: who speaks and writes, and how what one of them made reaches the others.

Whoever starts several processes says so in the environment of each, in the words of ``torchrun``: ``RANK``,
``WORLD_SIZE`` and ``LOCAL_RANK``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from rlcore.loading import load_attribute
from rlcore.specs import StrategySpec

if TYPE_CHECKING:
    from rlcore.run import Run

Value = TypeVar("Value")

LAUNCHER = "RLCORE_LAUNCHER"
"""Environment variable: the id of the ``rlcore run`` that started this process. It has told what can be told before."""


class Processes(Protocol):
    """What a run is told of the processes that it shares, whatever connects them."""

    @property
    def is_main(self) -> bool:
        """Whether this one writes files and speaks. Exactly one of them does."""
        ...

    def from_main(self, make: Callable[[], Value]) -> Value:
        """What ``make`` gives in the main process, in all of them; what it raises there is raised in all."""
        ...

    def end(self, error: BaseException | None) -> None:
        """This process is done; an error that the others do not know yet ends them too."""
        ...


class Alone:
    """One process."""

    is_main = True

    def from_main(self, make: Callable[[], Value]) -> Value:
        """What ``make`` gives."""
        return make()

    def end(self, error: BaseException | None) -> None:
        """There is nobody to tell."""


Start = Callable[[], int]
"""Starts the processes of a run and gives their exit status once they have ended."""


def processes_of(run: Run, arguments: Sequence[str]) -> Processes | Start:
    """The processes that this one trains a run with, or how to start them, as the run's strategy has it.

    Args:
        run: checked
        arguments: of ``rlcore`` in this process; those that are started get the same
    """
    spec = run.registry.spec("strategy", run.config.strategy.id)
    if not isinstance(spec, StrategySpec) or spec.launch is None:
        return Alone()
    return cast("Processes | Start", load_attribute(spec.launch)(run, tuple(arguments)))


def world_size() -> int:
    """How many processes somebody has started for this run; 1 where nobody says anything."""
    return _number("WORLD_SIZE", 1)


def rank() -> int:
    """Which of them this is, from 0; the first is the main one."""
    return _number("RANK", 0)


def local_rank() -> int:
    """Which of those on this machine this is, from 0."""
    return _number("LOCAL_RANK", 0)


def one_of_several_asked() -> bool:
    """Whether ``accelerate launch`` was asked for several processes and this one is not told of the others.

    Without several GPUs it leaves them to MPI, or starts one; either way it names the place where they would meet, and
    gives no ``WORLD_SIZE``.
    """
    return {"ACCELERATE_USE_CPU", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ) and "WORLD_SIZE" not in os.environ


def speaks_first() -> bool:
    """Whether this process says what is known before the processes know each other."""
    return rank() == 0 and LAUNCHER not in os.environ


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else default


__all__ = [
    "LAUNCHER",
    "Alone",
    "Processes",
    "Start",
    "local_rank",
    "one_of_several_asked",
    "processes_of",
    "rank",
    "speaks_first",
    "world_size",
]
