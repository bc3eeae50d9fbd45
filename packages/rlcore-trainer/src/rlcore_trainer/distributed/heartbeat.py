"""Notice a process of a run that hangs or is stopped, for which the others would wait for hours.

Each process counts in the store that all share. A lost connection is noticed without this, but a stopped process keeps
its connections. Long work does not stop the count, because a thread of its own counts.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as distributed
from rlcore.console.terminal import say
from rlcore.runs.stacks import SIGNAL, WRITTEN_S, stacks_file
from rlcore.session.processes import LAUNCHER

from rlcore_trainer.batching.sharding import Rank
from rlcore_trainer.distributed.failures import FAILURE
from rlcore_trainer.distributed.interfaces import interface_of

HEARTBEAT_S = 2.0
NOTICED, MISSED = 5, 90
"""Counts of this process without one of another, after which it is reported (10 s) and ended (three minutes).

Native code, such as a compiler, can keep a process from counting for a while."""
WATCHED = 3
"""How many processes each one watches: the next ones. All together would load the store with the square of them."""
STORE_TIMEOUT = timedelta(seconds=60)
ENDED = "ended"


class Heartbeat:
    """Counts for this process, and watches the others until `stop`.

    A process that is lost is ended, which closes its connections, so that the others stop waiting. If it is on another
    machine, this process ends itself instead. So does one that cannot reach the store on another machine any more.
    """

    def __init__(self, host: str, port: int, rank: Rank) -> None:
        # A connection of its own: one that waits is locked.
        self._store: Any = distributed.TCPStore(  # type: ignore[attr-defined]
            host, port, is_master=False, wait_for_workers=False, timeout=STORE_TIMEOUT
        )
        self._rank, self._place = rank, _place()
        self._heard = time.monotonic()
        self._watched = {(rank.index + 1 + place) % rank.world_size for place in range(WATCHED)} - {rank.index}
        self._seen: dict[int, str] = {}
        self._missed = [0] * rank.world_size
        self._count(0)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlcore-heartbeat", daemon=True)
        self._thread.start()
        if _is_far(host):
            threading.Thread(target=self._end_when_alone, name="rlcore-heartbeat-store", daemon=True).start()

    def stop(self) -> None:
        """Stop watching, and tell the others not to expect this process."""
        self._stopped.set()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        count = 0
        while not self._stopped.wait(HEARTBEAT_S):
            count += 1
            try:
                self._count(count)
                others = {index: self._last(index) for index in self._watched}
            except RuntimeError:
                if _first_hosts_the_store():  # and does not answer
                    self._miss(0, int(STORE_TIMEOUT.total_seconds() / HEARTBEAT_S))
                continue
            self._heard = time.monotonic()
            for index, value in others.items():
                if value == ENDED:
                    continue
                if value != self._seen.get(index):
                    self._seen[index], self._missed[index] = value, 0
                else:
                    self._miss(index, 1)
        with suppress(RuntimeError):
            self._store.set(_key(self._rank.index), ENDED)

    def _end_when_alone(self) -> None:
        """End this process if the machine of the store is cut off, for which calls of the store wait for ever."""
        while not self._stopped.wait(HEARTBEAT_S):
            if time.monotonic() - self._heard > HEARTBEAT_S * MISSED:
                say(f"error: rank {self._rank.index} cannot reach the machine that started the run", err=True)
                os._exit(1)

    def _count(self, count: int) -> None:
        self._store.set(_key(self._rank.index), f"{os.getpid()} {count} {self._place}")

    def _last(self, index: int) -> str:
        """The last count of a process; empty before its first."""
        key = _key(index)
        return str(self._store.get(key).decode()) if self._store.check([key]) else ""

    def _miss(self, index: int, count: int) -> None:
        noticed, self._missed[index] = self._missed[index] >= NOTICED, self._missed[index] + count
        if not noticed and self._missed[index] >= NOTICED and (index - self._rank.index) % self._rank.world_size == 1:
            text = f"rank {index} of {self._rank.world_size} has not responded for {HEARTBEAT_S * NOTICED:g} s"
            say(f"note      {text}, and will be ended after {HEARTBEAT_S * MISSED:g} s", err=True)
        if self._missed[index] >= MISSED and index != self._rank.index:
            self._missed[index] = 0
            self._end(index)

    def _end(self, index: int) -> None:
        text = (
            f"rank {index} of {self._rank.world_size} has not responded for {HEARTBEAT_S * MISSED:g} s: "
            f"it hangs, or it was stopped; if it could, it has written its stacks to {stacks_file(Path(), index)}"
        )
        if not _first_hosts_the_store() or index:
            with suppress(RuntimeError):
                self._store.compare_set(FAILURE, "", json.dumps({"kind": "process", "text": text}))
        pid, _, rest = self._seen.get(index, "").partition(" ")
        if rest.partition(" ")[2] == self._place:
            with suppress(ProcessLookupError):
                os.kill(int(pid), SIGNAL)
                time.sleep(WRITTEN_S)
                os.kill(int(pid), signal.SIGKILL)
            return
        say(f"error: {text}", err=True)
        os._exit(1)


_heartbeat: Heartbeat | None = None


def start_heartbeat(store: Any, rank: Rank) -> None:
    """Count and watch in this process, once. Only a store that is a server is used."""
    global _heartbeat
    while isinstance(store, distributed.PrefixStore):  # type: ignore[attr-defined]
        store = store.underlying_store
    if _heartbeat is None and isinstance(store, distributed.TCPStore):  # type: ignore[attr-defined]
        _heartbeat = Heartbeat(store.host, store.port, rank)


def stop_heartbeat() -> None:
    """Stop watching. Does nothing without a heartbeat."""
    global _heartbeat
    if _heartbeat is not None:
        _heartbeat.stop()
        _heartbeat = None


def _key(index: int) -> str:
    return f"rlcore/heartbeat/{index}"


def _place() -> str:
    """The machine and its process numbers, as far as processes can end each other. Host names may be equal."""
    machine, namespace = platform.node(), ""
    with suppress(OSError):
        machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{machine} {namespace}"


def _first_hosts_the_store() -> bool:
    return LAUNCHER not in os.environ and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"


def _is_far(host: str) -> bool:
    """Return whether a host is another machine."""
    return interface_of(str(socket.getaddrinfo(host, None)[0][4][0])) is None
