"""The processes that train one run: connected once, agreed about what went wrong, and never left waiting.

Everything that is not a gradient travels as objects over gloo, on machines with GPUs too: gloo notices at once when
another process is gone, where NCCL waits. A process that fails leaves word in the store that the launcher keeps, so
that the others can say why they end.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as distributed

# Before any group exists: default arguments in it keep the one that they are imported under, and with it gloo's
# threads, which now and then abort a process that ends while they run. Transformers would import it later.
import torch.distributed.nn.functional  # noqa: F401
from accelerate import PartialState
from rlcore.errors import EngineError, ProcessError, RlcoreError, UserError
from rlcore.processes import LAUNCHER, world_size
from torch import Tensor

from rlcore_trainer.dealing import ALONE, Place
from rlcore_trainer.launch import FAILURE, is_abandoned

Value = TypeVar("Value")

PATIENCE = timedelta(hours=2)
"""How long a process waits for another that is alive: for its share of a rollout, or for a model to be downloaded."""
LAST_WORDS_S = 5.0
"""How long a process that finds another one gone waits for word of why."""


class JoinedProcesses:
    """What goes on between the processes of a run (`rlcore.processes.Processes`).

    All of them call the same methods in the same order.

    Attributes:
        place: which of how many this one is
        device: this one's own, where there are several
    """

    def __init__(self, *, cpu: bool) -> None:
        """Wait for all the others that the environment tells of, unless this process has joined them already.

        Args:
            cpu: none of them uses a GPU

        Raises:
            ProcessError: they do not find each other.
        """
        self.place, self.device = ALONE, torch.device("cpu")
        if world_size() == 1:
            return
        backend = {} if cpu else {"backend": "cpu:gloo,cuda:nccl"}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it tells how many threads it has chosen
                state = PartialState(cpu=cpu, timeout=PATIENCE, **backend)
        except RuntimeError as error:
            raise ProcessError(f"the processes of the run do not find each other: {_first_line(error)}") from error
        self.place = Place(state.process_index, state.num_processes)
        self.device = state.device

    @property
    def is_main(self) -> bool:
        """Whether this one writes files and speaks."""
        return self.place.index == 0

    def exchange(self, value: Value) -> list[Value]:
        """The values of all processes, in their order."""
        if self.place.count == 1:
            return [value]
        found: list[Any] = [None] * self.place.count
        with self._watched():
            distributed.all_gather_object(found, value)
        return found

    def add(self, tensor: Tensor) -> None:
        """Put the sum over all processes into a tensor; it gets the same bits in each of them."""
        if self.place.count > 1:
            with self._watched():
                distributed.all_reduce(tensor)

    def any(self, here: bool) -> bool:
        """Whether it holds in any process, or whoever started them is gone."""
        return any(self.exchange(here or is_abandoned()))

    def from_main(self, make: Callable[[], Value]) -> Value:
        """What ``make`` gives in the main process; what it raises there is raised in all."""
        value: Value | None = None
        error: Exception | None = None
        if self.is_main:
            try:
                value = make()
            except Exception as raised:  # the boundary to the other processes: they all end by it
                error = raised
        made, told = self.exchange((value, _told(error, self.place)) if self.is_main else (None, None))[0]
        if error is not None:
            raise error
        if told is not None:
            raise _error_of(told)
        return value if self.is_main else made  # type: ignore[return-value]

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """A block of which an error in one process is raised in all; see `SingleProcess.agreed`."""
        error: Exception | None = None
        try:
            yield
        except Exception as raised:  # the boundary to the other processes: they all have to know
            error = raised
        everybody = self.exchange(_told(error, self.place))
        if error is not None:
            raise error
        if failures := [told for told in everybody if told is not None]:
            raise _error_of(failures[0])

    def end(self, error: BaseException | None) -> None:
        """Part from the others, or leave word of what ended this process."""
        if error is None:
            with suppress(ProcessError):  # who fails after its work is done says so itself
                self.exchange(None)
            with suppress(RuntimeError):
                distributed.destroy_process_group()
            return
        with suppress(RuntimeError):  # the store went with the process that kept it
            _store().compare_set(FAILURE, "", json.dumps(_told(error, self.place)))

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Where another process may be found gone: say why, as far as anybody knows."""
        try:
            yield
        except RuntimeError as error:
            raise _last_words() from error


def _last_words() -> BaseException:
    """Why another process ended: its own words, those of whoever started it, or that nobody knows."""
    deadline = time.monotonic() + LAST_WORDS_S
    with suppress(RuntimeError):
        while time.monotonic() < deadline:
            if _store().check([FAILURE]):
                return _error_of(json.loads(_store().get(FAILURE)), agreed=False)
            time.sleep(0.1)
    return ProcessError(
        "another process of this run ended before its time and left no word: killed from outside, or out of memory"
    )


def _store() -> Any:
    """Where words can be left that outlive a process; `rlcore_trainer.launch.start` leaves its own at the bottom."""
    store = distributed.distributed_c10d._get_default_store()
    while LAUNCHER in os.environ and isinstance(store, distributed.PrefixStore):  # type: ignore[attr-defined]
        store = store.underlying_store
    return store


def _told(error: BaseException | None, place: Place) -> dict[str, Any] | None:
    """An error as plain data; None for none."""
    if error is None:
        return None
    if isinstance(error, UserError):
        return {"kind": "user", "parts": [error.message, error.found, error.where, error.mend]}
    if isinstance(error, KeyboardInterrupt):
        return {"kind": "interrupt"}
    kind = "engine" if isinstance(error, EngineError) else "process"
    text = str(error) if isinstance(error, RlcoreError) else f"{type(error).__name__}: {_first_line(error)}"
    if not isinstance(error, ProcessError):
        text = f"rank {place.index} of {place.count} failed: {text}"
    return {"kind": kind, "text": text}


def _error_of(told: dict[str, Any], *, agreed: bool = True) -> BaseException:
    """The error that others raise. One that was not agreed came in the middle of something: nobody goes on from it."""
    if told["kind"] == "user":
        message, found, where, mend = told["parts"]
        return UserError(message, found=found, where=where, mend=mend)
    if told["kind"] == "interrupt":
        return KeyboardInterrupt()
    return EngineError(told["text"]) if told["kind"] == "engine" and agreed else ProcessError(told["text"])


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]
