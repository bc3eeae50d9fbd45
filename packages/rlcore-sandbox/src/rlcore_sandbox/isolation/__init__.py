"""The confinement of a session, applied in its process before the first cell. Standard library and ctypes only.

`prepare` is called once, in the process that starts sessions. What it returns forks processes and confines each before
code of a model runs in it. The backends are ``namespaces``, ``bubblewrap`` and ``landlock``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import namespaces, restricted

BACKENDS = ("namespaces", "bubblewrap", "landlock")


def started_as(backend: str, command: Sequence[str], folder: str) -> list[str]:
    """The command that starts the process of `prepare`.

    Args:
        backend: one of `BACKENDS`
        command: starts the process without a sandbox
        folder: as for `prepare`
    """
    return restricted.bubblewrap_command(command, folder) if backend == "bubblewrap" else list(command)


def prepare(backend: str, limits: Any, folder: str) -> namespaces.Prepared | restricted.Prepared:
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
