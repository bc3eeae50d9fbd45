"""Resource limits of the kernel for the process of a session and its children."""

from __future__ import annotations

import os
import resource
from typing import Any

MIB = 2**20
PENDING_SIGNALS = 128


def apply_limits(limits: Any, *, processes: int | None) -> None:
    """Set the limits of this process for good.

    Args:
        limits: with the fields of `rlcore.types.SandboxLimits`
        processes: processes and threads of this user in this user namespace; None leaves the limit as it is
    """
    wanted = {
        resource.RLIMIT_AS: address_space_bytes() + limits.memory_mb * MIB,
        resource.RLIMIT_FSIZE: limits.file_mb * MIB,
        resource.RLIMIT_NOFILE: limits.files,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_SIGPENDING: PENDING_SIGNALS,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
    }
    if processes is not None:
        wanted[resource.RLIMIT_NPROC] = processes
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))


def address_space_bytes() -> int:
    """What this process has mapped now; the limit on memory is counted from here."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def private_bytes(folder: str) -> int:
    """Anonymous memory of the process whose folder in /proc is given, with what it shares with its parent."""
    with open(os.path.join(folder, "statm"), "rb") as file:
        _, resident, shared = file.read().split()[:3]
    return (int(resident) - int(shared)) * resource.getpagesize()
