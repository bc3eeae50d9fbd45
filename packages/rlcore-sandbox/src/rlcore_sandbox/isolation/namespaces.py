"""Sessions with namespaces of their own: user, PID, mount, network, IPC, UTS and cgroup.

The process that starts sessions enters a read-only view once. A session then needs few mounts: its scratch folder and
/proc.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from . import confinement, kernel, landlock, limits, seccomp, view

UNPRIVILEGED = 65534
"""User and group of sessions that root starts."""
INSIDE = 1000
"""User and group as a session sees them."""
FILES = 16_384
_ALL = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWCGROUP
)
_PR_SET_DUMPABLE = 4


@dataclass(frozen=True, slots=True)
class Prepared:
    """What sessions inherit."""

    limits: Any
    folder: str
    ruleset: int | None
    """Landlock's ruleset; None without landlock."""
    baseline: int
    """Memory that a session shares with its parent, in bytes."""
    program: bytes
    """The filter of system calls."""
    user: int
    group: int
    """Of sessions, as the host sees them."""

    def fork(self) -> int:
        """Fork as `os.fork`, into namespaces of its own, in which the child has process id 1."""
        return kernel.fork_into(_ALL)

    def enter(self, scratch: str) -> None:
        """Confine this single-threaded process, a child from `fork`, for good.

        Args:
            scratch: a path below the folder of `prepare`, the only one in which the session may write
        """
        _map(INSIDE, self.user, INSIDE, self.group)
        view.cover(self.folder, megabytes=self.limits.file_mb, files=FILES)
        os.mkdir(scratch, 0o700)
        os.chdir(scratch)
        limits.apply_limits(self.limits, processes=self.limits.processes)
        view.mount_proc()
        kernel.set_host_name("sandbox")
        confinement.confine([] if self.ruleset is None else [self.ruleset], self.program)

    def exceeded(self, process: int, scratch: str) -> int:
        """The status with which a session must be ended because it exceeds a limit that is checked, otherwise 0.

        Args:
            process: the first process of the session
            scratch: as for `enter`
        """
        return limits.memory_status(limits.tree([process]), self.limits, self.baseline)

    def progress(self, process: int) -> str:
        """What changes whenever a session runs, so that idle ones are not checked; empty if it must be checked."""
        return ""


def prepare(limits_: Any, folder: str) -> Prepared:
    """Enter the view, as an unprivileged user.

    Args:
        limits_: with the fields of `rlcore.types.SandboxLimits`
        folder: the folder that will hold the scratch folders; afterwards an empty one at the same path. Sessions may
            read all that is below its parent, so the parent must contain nothing else.
    """
    if kernel.capabilities() & 1 << confinement.CAP_SYS_ADMIN:
        kernel.unshare(kernel.CLONE_NEWNS)
        view.enter_view(folder)
        os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
        confinement.become(UNPRIVILEGED)
    else:
        if os.geteuid() == 0:
            confinement.become(UNPRIVILEGED)
        user, group = os.geteuid(), os.getegid()
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
        _map(user, user, group, group)
        view.enter_view(folder)
        kernel.drop_capabilities()
    kernel.prctl(_PR_SET_DUMPABLE, 1)  # otherwise /proc/self belongs to root
    ruleset = None
    if landlock.version():
        ruleset = confinement.create_ruleset()
        landlock.allow_scratch(ruleset, os.path.dirname(folder))
    baseline = limits.private_bytes("/proc/self")
    program = seccomp.program(processes=True, process_id=1)
    return Prepared(limits_, folder, ruleset, baseline, program, os.geteuid(), os.getegid())


def _map(inside_user: int, user: int, inside_group: int, group: int) -> None:
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside_user} {user} 1"),
        ("gid_map", f"{inside_group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(line)
