"""The processes of a run: which one prints and writes files, and how values are shared between them.

A launcher sets the environment variables of ``torchrun`` in each process: ``RANK``, ``WORLD_SIZE`` and ``LOCAL_RANK``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from rlcore.plugins.loading import load_attribute
from rlcore.specs import StrategySpec

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

Value = TypeVar("Value")

LAUNCHER = "RLCORE_LAUNCHER"
"""Environment variable: the id of the ``rlcore run`` that started this process and printed the early messages."""


class Processes(Protocol):
    """The connection between the processes of a run."""

    @property
    def is_main(self) -> bool:
        """Whether this process prints and writes files. True in exactly one process."""
        ...

    def from_main(self, make: Callable[[], Value]) -> Value:
        """Call ``make`` in the main process and return its result, or raise its exception, in all processes."""
        ...

    def end(self, error: BaseException | None) -> None:
        """Report that this process has finished. An error that occurs only in this process also ends the others."""
        ...


class Alone:
    """One process."""

    is_main = True

    def from_main(self, make: Callable[[], Value]) -> Value:
        """The result of ``make``."""
        return make()

    def end(self, error: BaseException | None) -> None:
        """Does nothing: there are no other processes."""


Start = Callable[[], int]
"""Starts the processes of a run and returns their exit status after they have ended."""


def processes_of(run: RunSession, arguments: Sequence[str]) -> Processes | Start:
    """The processes of a run, or a function that starts them, according to the strategy.

    Args:
        run: a checked run
        arguments: the arguments of ``rlcore`` in this process, passed on to the processes that it starts
    """
    spec = run.registry.spec("strategy", run.config.strategy.id)
    if not isinstance(spec, StrategySpec) or spec.launch is None:
        return Alone()
    return cast("Processes | Start", load_attribute(spec.launch)(run, tuple(arguments)))


def world_size() -> int:
    """The number of processes of this run; 1 without a launcher."""
    return _number("WORLD_SIZE", 1)


def rank() -> int:
    """The index of this process, from 0; process 0 is the main process."""
    return _number("RANK", 0)


def local_rank() -> int:
    """The index of this process on this machine, from 0."""
    return _number("LOCAL_RANK", 0)


def one_of_several_asked() -> bool:
    """Whether ``accelerate launch`` was asked for several processes without connecting them.

    Without several GPUs, it starts the processes with MPI, or only one. In both cases it sets the rendezvous address,
    but no ``WORLD_SIZE``.
    """
    return {"ACCELERATE_USE_CPU", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ) and "WORLD_SIZE" not in os.environ


def speaks_first() -> bool:
    """Whether this process prints messages before the processes are connected."""
    return rank() == 0 and LAUNCHER not in os.environ


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else default
