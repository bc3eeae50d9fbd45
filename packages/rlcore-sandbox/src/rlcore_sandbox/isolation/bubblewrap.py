"""Bubblewrap around the process that starts sessions, for systems where only it may create namespaces.

The sessions share the namespaces that bubblewrap creates, and are separated from each other as in `restricted`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from . import interpreter

PROGRAM = "bwrap"
MODULES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder of the package, for the process that starts sessions."""
MEGABYTES = 4096
"""Size of the scratch folders of all sessions together."""

_DELETING = ("/bin/sh", "/usr/bin/chmod", "/usr/bin/rm", "/bin/chmod", "/bin/rm")
"""Programs that delete the folders of sessions. Sessions cannot start programs."""


def command(arguments: Sequence[str], folder: str) -> list[str]:
    """The command that runs `arguments` in a view of its own with an empty, writable `folder`."""
    binds: list[str] = []
    for path in (*interpreter.library_folders(), *interpreter.package_folders(), *_start_files()):
        binds += ["--ro-bind", path, path]
    devices = [word for path in interpreter.DEVICES for word in ("--dev-bind", path, path)]
    return [
        shutil.which(PROGRAM) or PROGRAM,
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
