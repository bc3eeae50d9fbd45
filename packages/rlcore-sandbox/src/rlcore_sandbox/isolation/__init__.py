"""The confinement of a session, applied in its process before the first cell. Standard library and ctypes only.

`prepare` is called once, in the process that starts sessions, and `enter` in each forked process before code of a model
runs in it. The backends are ``namespaces``, ``bubblewrap`` and ``landlock``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from . import limits, namespaces, restricted

BACKENDS = ("namespaces", "bubblewrap", "landlock")


def started_as(backend: str, command: Sequence[str], folder: str) -> list[str]:
    """The command that starts the process of `prepare`.

    Args:
        backend: one of `BACKENDS`
        command: starts the process without a sandbox
        folder: as for `prepare`
    """
    return restricted.bubblewrap_command(command, folder) if backend == "bubblewrap" else list(command)


def prepare(backend: str, limits: Any, folder: str) -> Any:
    """Prepare the confinement once, before anything runs in it.

    Args:
        backend: one of `BACKENDS`; this process is started with `started_as`
        limits: with the fields of `rlcore.types.SandboxLimits`
        folder: holds the scratch folders of the sessions, alone in its parent. For ``namespaces`` it is replaced by
            an empty one, and the files of the host are no longer visible in this process.

    Raises:
        OSError: the kernel refuses it.
    """
    if backend not in BACKENDS:
        raise ValueError(f"no backend {backend!r}; expected one of {', '.join(BACKENDS)}")
    return namespaces.prepare(limits, folder) if backend == "namespaces" else restricted.prepare(limits, folder)


def fork(prepared: Any) -> int:
    """Fork as `os.fork`, for `enter` in the child.

    Args:
        prepared: by `prepare`
    """
    return namespaces.fork() if isinstance(prepared, namespaces.Prepared) else os.fork()


def exceeded(prepared: Any, process: int, scratch: str) -> int:
    """The status with which a session must be ended because it exceeds a limit that is checked, otherwise 0.

    Args:
        prepared: by `prepare`
        process: the first process of the session
        scratch: as for `enter`
    """
    if isinstance(prepared, namespaces.Prepared):
        return limits.memory_status(limits.tree(process), prepared.limits, prepared.baseline)
    return limits.files_status([process], prepared.limits, scratch)


def progress(prepared: Any, process: int) -> str:
    """What changes whenever a session runs, so that idle ones are not checked; empty if it must always be checked."""
    return "" if isinstance(prepared, namespaces.Prepared) else limits.progress(process)


def enter(prepared: Any, scratch: str) -> None:
    """Confine this single-threaded process for good. It is a child from `fork`, and leads a session of its own.

    Args:
        prepared: by `prepare`
        scratch: an empty folder below `folder`, the only one in which the session may write
    """
    if isinstance(prepared, namespaces.Prepared):
        namespaces.enter(prepared, scratch)
    else:
        restricted.enter(prepared, scratch)
