"""Communication and error handling between the processes of a run.

All data except gradients is exchanged as objects over gloo, also on GPU machines, because gloo detects a lost process
immediately while NCCL waits. A failing process writes its error to the launcher's store, so that the other processes
can report it.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as distributed

# Import this before any group exists. Its default arguments capture the group that exists at import time, and with it
# gloo's threads, which occasionally abort a process that exits while they run. Transformers would import it later.
import torch.distributed.nn.functional  # noqa: F401
from accelerate import PartialState
from rlcore.errors import ProcessError, RlcoreError
from rlcore.session.processes import LAUNCHER
from torch import Tensor

from rlcore_trainer.batching.sharding import Rank
from rlcore_trainer.batching.team import Team
from rlcore_trainer.distributed.collectives import Processes
from rlcore_trainer.distributed.failures import FAILURE, error_of, first_line, is_abandoned, told_error
from rlcore_trainer.distributed.heartbeat import STORE_TIMEOUT, start_heartbeat, stop_heartbeat

Value = TypeVar("Value")

PATIENCE = timedelta(hours=2)
"""Timeout for another live process, for example during a rollout or a model download.

`rlcore_trainer.distributed.heartbeat` notices one that is stopped much earlier."""
CONNECTING = timedelta(minutes=3)
"""How far apart the processes may start. With a port that drops packets, gloo waits five times as long."""
LAST_WORDS_S = 5.0
"""Seconds to wait for the error of a lost process."""


class JoinedProcesses(Processes):
    """Implements both protocols named ``Processes``, that of the core and that of strategies, with torch.distributed.

    All processes must call the same methods in the same order.

    Attributes:
        rank: rank of this process and the world size
        device: device of this process
    """

    def __init__(self, *, cpu: bool, team_size: int = 1) -> None:
        """Join the process group described by the environment, unless already joined.

        Args:
            cpu: whether no process uses a GPU
            team_size: how many processes compute each micro-batch together

        Raises:
            ProcessError: the processes cannot connect.
        """
        backend = {} if cpu else {"backend": "cpu:gloo,cuda:nccl"}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PartialState reports its number of threads
                if LAUNCHER in os.environ:  # with a closed port, PartialState would try for the whole of CONNECTING
                    distributed.TCPStore(  # type: ignore[attr-defined]
                        os.environ["MASTER_ADDR"],
                        int(os.environ["MASTER_PORT"]),
                        is_master=False,
                        wait_for_workers=False,
                        timeout=STORE_TIMEOUT,
                    )
                state = PartialState(cpu=cpu, timeout=CONNECTING, **backend)
        except RuntimeError as error:
            raise ProcessError(
                "the processes of the run cannot connect to each other. On several machines, open all ports between "
                f"them, or set GLOO_SOCKET_IFNAME to the interface of their network: {first_line(error)}"
            ) from error
        distributed.distributed_c10d._set_pg_timeout(PATIENCE)
        self.rank = Rank(state.process_index, state.num_processes)
        self.device = state.device
        if team_size > 1:
            group, _ = distributed.new_subgroups(team_size)  # type: ignore[no-untyped-call]
            self.team = Team(self.rank.index % team_size, team_size, group)
        start_heartbeat(_store(), self.rank)

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and logs."""
        return self.rank.index == 0

    def exchange(self, value: Value) -> list[Value]:
        """Return the values of all processes, ordered by rank."""
        found: list[Any] = [None] * self.rank.world_size
        with self._watched():
            distributed.all_gather_object(found, value)
        return found

    def scatter(self, values: Sequence[Value] | None) -> Value:
        """Send a value to each process; only the main process provides them."""
        found: list[Any] = [None]
        with self._watched():
            distributed.scatter_object_list(found, None if values is None else list(values), src=0)
        received: Value = found[0]
        return received

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all processes in the main process, ordered by rank, and an empty list in the others."""
        found: list[Any] | None = [None] * self.rank.world_size if self.is_main else None
        with self._watched():
            distributed.gather_object(value, found, dst=0)
        return found or []

    def add(self, tensor: Tensor) -> None:
        """Sum a tensor over all processes in place. The result is bitwise identical in all processes."""
        with self._watched():
            distributed.all_reduce(tensor)

    def any(self, here: bool) -> bool:
        """Return whether ``here`` is true in any process, or the launcher has ended."""
        return super().any(here or is_abandoned())

    def from_main(self, make: Callable[[], Value]) -> Value:
        """Return the result of ``make`` in the main process. An error there is raised in all processes."""
        value: Value | None = None
        error: Exception | None = None
        if self.is_main:
            try:
                value = make()
            except Exception as raised:  # raised in all processes below
                error = raised
        made, told = self.exchange((value, told_error(error, self.rank)) if self.is_main else (None, None))[0]
        if error is not None:
            raise error
        if told is not None:
            raise error_of(told)
        return value if self.is_main else made  # type: ignore[return-value]

    def end(self, error: BaseException | None) -> None:
        """Leave the process group, or report the error that ended this process."""
        if error is None:
            # A process that fails after its work reports its own error, which may be of any kind.
            with suppress(RlcoreError, KeyboardInterrupt):
                self.exchange(None)
            stop_heartbeat()
            with suppress(RuntimeError):
                distributed.destroy_process_group()
            return
        with suppress(RuntimeError):  # the process that hosts the store has ended
            _store().compare_set(FAILURE, "", json.dumps(told_error(error, self.rank)))
        stop_heartbeat()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Convert the error of a lost connection to the error of the process that failed."""
        try:
            yield
        except RuntimeError as error:
            raise _last_words() from error


def _last_words() -> BaseException:
    """Return the error of another process as reported by that process or the launcher, or a generic error."""
    deadline = time.monotonic() + LAST_WORDS_S
    with suppress(RuntimeError):
        while time.monotonic() < deadline:
            if _store().check([FAILURE]):
                return error_of(json.loads(_store().get(FAILURE)), recoverable=False)
            time.sleep(0.1)
    return ProcessError("another process of this run ended unexpectedly: it was killed or ran out of memory")


def _store() -> Any:
    """Return the store shared by the processes. `rlcore_trainer.distributed.launch.start` owns the innermost one."""
    store = distributed.distributed_c10d._get_default_store()
    while LAUNCHER in os.environ and isinstance(store, distributed.PrefixStore):  # type: ignore[attr-defined]
        store = store.underlying_store
    return store
