"""The processes of a run on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Protocol

from rlcore.runs.surroundings import usable_cores
from rlcore.session.processes import LAUNCHER

THREADS = "OMP_NUM_THREADS"


class RankProcess(Protocol):
    """A process of the run: a `subprocess.Popen`, or one on another machine."""

    @property
    def returncode(self) -> int | None:
        """The exit status; negative for a signal, None while the process is running."""
        ...

    def poll(self) -> int | None:
        """Return the exit status of now."""
        ...

    def send_signal(self, number: int, /) -> None:
        """Send a signal."""
        ...

    def kill(self) -> None:
        """End the process."""
        ...

    def wait(self) -> object:
        """Wait for the end."""
        ...


def rank_variables(index: int, count: int, host: str, port: int) -> dict[str, str]:
    """Return the variables of ``torchrun`` for a process on this machine.

    Args:
        index: its rank
        count: number of processes
        host: address of the machine with the store
        port: that of the store, which exists already
    """
    return {
        LAUNCHER: str(os.getpid()),
        "RANK": str(index),
        "LOCAL_RANK": str(index),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store already exists
    }


def local_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process on this machine, which has its share of the cores."""
    return {THREADS: share_of_cores(variables), **os.environ, **variables}


def share_of_cores(variables: Mapping[str, str]) -> str:
    """Return the number of threads with which the processes of this machine use each core once."""
    return str(max(1, usable_cores() // int(variables["LOCAL_WORLD_SIZE"])))


class LocalRanks:
    """Starts the processes of a run on this machine."""

    address = "127.0.0.1"
    """The address of this machine for the other processes."""

    def start(self, index: int, arguments: Sequence[str], variables: Mapping[str, str]) -> RankProcess:
        """Start ``rlcore`` with these arguments and environment variables. Only the main process has the terminal."""
        return subprocess.Popen(
            [sys.executable, "-m", "rlcore", *arguments],
            env=local_environment(variables),
            stdin=None if index == 0 else subprocess.DEVNULL,
            stdout=None if index == 0 else subprocess.DEVNULL,
            start_new_session=True,
        )
