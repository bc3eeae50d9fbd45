"""Sessions without namespaces of their own: landlock, seccomp and resource limits.

A session is one process with one thread, which can signal only itself. It sees the files of the machine, but opens only
the interpreter and its scratch folder. On systems where only bubblewrap may create namespaces, it can surround the
process that starts sessions: all of them share these namespaces.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import confinement, interpreter, kernel, landlock, limits, namespaces, seccomp

NEEDED_LANDLOCK = 3
"""The first version that checks the truncation of files: Linux 6.2."""
BUBBLEWRAP = "bwrap"
MODULES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder of the package, for the process that starts sessions."""
MEGABYTES = 4096
"""Size of the scratch folders of all sessions together."""
_DELETING = ("/bin/sh", "/usr/bin/chmod", "/usr/bin/rm", "/bin/chmod", "/bin/rm")
"""Programs that delete the folders of sessions. Sessions cannot start programs."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What sessions inherit."""

    limits: Any
    ruleset: int
    """For the interpreter and the folder of all scratch folders."""
    user: int | None
    """To which root changes in a session; None to keep the user."""

    def fork(self) -> int:
        """Fork as `os.fork`."""
        return os.fork()

    def enter(self, scratch: str) -> None:
        """As `namespaces.Prepared.enter`, in an empty folder."""
        if self.user is not None:
            os.chown(scratch, self.user, self.user)
            confinement.become(self.user)
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of the user clears it
        os.chdir(scratch)
        limits.apply_limits(self.limits, processes=None)
        own = landlock.create_ruleset(_roots())
        for device in interpreter.DEVICES:
            landlock.allow(own, device, landlock.READ_FILE | landlock.WRITE_FILE)
        landlock.allow_scratch(own, scratch)
        confinement.confine([self.ruleset, own], seccomp.program(processes=False, process_id=os.getpid()))
        os.close(own)

    def exceeded(self, process: int, scratch: str) -> int:
        """As `namespaces.Prepared.exceeded`."""
        return limits.files_status([process], self.limits, scratch)

    def progress(self, process: int) -> str:
        """As `namespaces.Prepared.progress`."""
        return limits.progress(process)


def prepare(limits_: Any, folder: str) -> Prepared:
    """Prepare the rules that all sessions share; as `namespaces.prepare`. This process is not confined."""
    ruleset = confinement.create_ruleset()
    landlock.allow_scratch(ruleset, folder)
    user = session_user()
    if user is not None:
        os.chmod(folder, 0o711)  # sessions enter their folders in it
    return Prepared(limits_, ruleset, user)


def session_user() -> int | None:
    """The user of sessions, or None for the current one.

    Sessions that root starts run as an unprivileged user, unless other users cannot read the interpreter.
    """
    if os.geteuid() != 0:
        return None
    child = os.fork()
    if not child:
        try:
            confinement.become(namespaces.UNPRIVILEGED)
            folders = [*interpreter.package_folders(), os.path.dirname(os.__file__)]
            os._exit(0 if all(os.access(path, os.R_OK | os.X_OK) for path in folders) else 1)
        finally:
            os._exit(1)
    return namespaces.UNPRIVILEGED if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 else None


def _roots() -> list[str]:
    """Few folders that contain everything readable, so that the rules of a session are quickly made."""
    return [*interpreter.package_folders(), *interpreter.library_folders()]


def bubblewrap_command(arguments: Sequence[str], folder: str) -> list[str]:
    """The command that runs `arguments` in a view of its own with an empty, writable `folder`."""
    binds: list[str] = []
    for path in (*interpreter.library_folders(), *interpreter.package_folders(), *_start_files()):
        binds += ["--ro-bind", path, path]
    devices = [word for path in interpreter.DEVICES for word in ("--dev-bind", path, path)]
    return [
        shutil.which(BUBBLEWRAP) or BUBBLEWRAP,
        *("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *("--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", "--hostname", "sandbox"),
        "--new-session",
        *binds,
        *devices,
        *("--proc", "/proc"),
        *("--size", str(MEGABYTES << 20), "--tmpfs", folder),
        *("--chdir", folder, "--"),
        *arguments,
    ]


def _start_files() -> list[str]:
    """What starting the interpreter needs beyond what sessions may read."""
    executables = {sys.executable, os.path.realpath(sys.executable)}
    settings = os.path.join(sys.prefix, "pyvenv.cfg")
    loaders = ["/lib/ld-linux-aarch64.so.1"]
    return [path for path in (*executables, settings, *loaders, *_DELETING, MODULES) if os.path.exists(path)]
