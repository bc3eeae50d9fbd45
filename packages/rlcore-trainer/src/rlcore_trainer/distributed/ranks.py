"""Calls that the controller makes in all processes of a run.

One process decides: the controller runs in the main process, and the others only carry out its calls. Each receives its
own arguments, such as its share of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from rlcore.errors import RlcoreError

from rlcore_trainer.distributed.collectives import Processes
from rlcore_trainer.distributed.failures import error_of, is_abandoned, told_error


class Ranks:
    """Carries out calls in all processes, as a context manager that releases the others at its end.

    Every process offers the same functions by name. The main process uses `call`, the others `serve`.

    Args:
        processes: the processes of the run
        stop_requested: whether this process received a signal to stop
    """

    def __init__(self, processes: Processes, stop_requested: Callable[[], bool] = lambda: False) -> None:
        self.processes, self._stop_requested = processes, stop_requested
        self._functions: dict[str, Callable[..., Any]] = {}
        self._stop_reported = False
        self._waiting = True
        """Whether the other processes wait for a call."""

    @property
    def count(self) -> int:
        """The number of processes."""
        return self.processes.rank.world_size

    @property
    def is_main(self) -> bool:
        """Whether this process makes the calls."""
        return self.processes.rank.index == 0

    def offer(self, **functions: Callable[..., Any]) -> None:
        """Make functions available to `call`, by name."""
        self._functions |= functions

    def stopping(self) -> bool:
        """Return whether a process received a signal to stop, or the launcher has ended.

        The other processes report a signal with their next result.
        """
        return self._stop_requested() or self._stop_reported or is_abandoned()

    def call_all(self, name: str, *arguments: Any, separate: bool = False) -> list[Any]:
        """Call a function with the same arguments in all processes; see `call`."""
        return self.call(name, [arguments] * self.count, separate=separate)

    def call(self, name: str, arguments: Sequence[Sequence[Any]], *, separate: bool = False) -> list[Any]:
        """Call a function in all processes, and return the results by rank.

        Args:
            name: as given to `offer`
            arguments: the arguments for each process
            separate: whether the function contains no collective operation. Its errors can then be handled: an error of
                any process is raised here, and all of them wait for the next call. Otherwise, an error ends the run.
        """
        if self.count == 1:
            return [self._functions[name](*arguments[0])]
        self._waiting = False
        self.processes.scatter([(name, tuple(one), separate) for one in arguments])
        result, error = self._carry_out(name, arguments[0], separate)
        replies: list[Any] = self.processes.gather(None)[1:]
        self._waiting = True
        self._stop_reported = self._stop_reported or any(stop for _, _, stop in replies)
        if error is not None:
            raise error
        for _, told, _ in replies:
            if told is not None:
                raise error_of(told)
        return [result, *(found for found, _, _ in replies)]

    def serve(self) -> None:
        """Carry out the calls of the main process until it ends."""
        call: Any
        while (call := self.processes.scatter(None)) is not None:
            name, arguments, separate = call
            result, error = self._carry_out(name, arguments, separate)
            self.processes.gather((result, told_error(error, self.processes.rank), self._stop_requested()))
            if error is not None and not isinstance(error, RlcoreError):
                raise error  # so that its traceback is printed

    def _carry_out(self, name: str, arguments: Sequence[Any], separate: bool) -> tuple[Any, Exception | None]:
        try:
            return self._functions[name](*arguments), None
        except Exception as error:  # raised in the main process
            if not separate:
                raise
            return None, error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.count > 1 and self.is_main and self._waiting:
            # A process that failed meanwhile reports its own error, which may be of any kind.
            with suppress(RlcoreError, KeyboardInterrupt):
                self.processes.scatter([None] * self.count)
