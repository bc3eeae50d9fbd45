"""Which sandboxes can be used on this machine, and what the local ones guarantee. Found by trying them."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlcore.checks import Finding
from rlcore.plugins.registry import Registry
from rlcore.session.sandboxes import examine, ranked
from rlcore.types import SandboxSupport

from rlcore_sandbox.isolation import restricted
from rlcore_sandbox.starting import create_sessions_folder

PROBE = "rlcore_sandbox.isolation.probe"
TIMEOUT_S = 60.0
SERVICE = "use a sandbox service: sandbox.id=http sandbox.base_url=http://HOST:8080"
_NO_NETWORK = "no network and no sockets"
_ONLY_INTERPRETER = "of the host's files, only the interpreter and its packages can be read"
_SINGLE = "no further processes or threads, and no signals to other processes"
_FIXES = {
    "namespaces": "allow user namespaces for this user: sysctl user.max_user_namespaces,"
    " kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0",
    "bubblewrap": "install bubblewrap (apt-get install bubblewrap), on a system where it may create namespaces",
    "landlock": "use Linux 6.2 or newer with landlock enabled (lsm=landlock,...)",
}


def namespaces(config: Any = None) -> SandboxSupport:
    """Of the backend ``namespaces``."""
    found = facts("namespaces")
    if "error" in found:
        return _unavailable("namespaces", found)
    layers = f"landlock {found['landlock']}, " if found["landlock"] else ""
    lacks = ["CPU time is limited for each process, not for their sum"]
    if not found["landlock"]:
        lacks.append("packages of rlcore and of plugins can be read, because the kernel lacks landlock")
    return SandboxSupport(
        guarantees=(
            "each session has its own user, PID, mount, network, IPC, UTS and cgroup namespaces",
            f"{layers}system calls are filtered",
            _ONLY_INTERPRETER,
            _NO_NETWORK,
            "a private folder in memory, deleted with the session",
            "memory, files, processes and threads are limited, and end with the session",
        ),
        lacks=tuple(lacks),
    )


def bubblewrap(config: Any = None) -> SandboxSupport:
    """Of the backend ``bubblewrap``."""
    if shutil.which(restricted.BUBBLEWRAP) is None:
        return _unavailable("bubblewrap", {"error": f"the program {restricted.BUBBLEWRAP} is not installed"})
    found = facts("bubblewrap")
    if "error" in found:
        return _unavailable("bubblewrap", found)
    return SandboxSupport(
        guarantees=(
            "all sessions share user, PID, mount, network, IPC, UTS and cgroup namespaces of their own",
            f"sessions are separated by landlock {found['landlock']} and filtered system calls",
            _ONLY_INTERPRETER,
            _NO_NETWORK,
            _SINGLE,
            "memory and files are limited",
        ),
        lacks=(*_checked_files(), "names and sizes of the files of other sessions are visible"),
    )


def landlock(config: Any = None) -> SandboxSupport:
    """Of the backend ``landlock``."""
    found = facts("landlock")
    if "error" in found:
        return _unavailable("landlock", found)
    as_root = ("code runs as root without capabilities, because other users cannot read the interpreter",)
    return SandboxSupport(
        guarantees=(
            f"landlock {found['landlock']}, system calls are filtered",
            _ONLY_INTERPRETER,
            _NO_NETWORK,
            _SINGLE,
            "memory and files are limited",
        ),
        lacks=(
            "no namespaces: names, sizes and times of the host's files are visible",
            *_checked_files(),
            *(as_root if found["root"] else ()),
        ),
    )


def sandboxes() -> Iterator[Finding]:
    """What each sandbox guarantees here, the strongest first. One that is weaker than another is not missed."""
    registry = Registry()
    missed = True
    for choice in [examine(registry, spec.id) for spec in ranked(registry)]:
        support = choice.support
        if support.available:
            used = " (auto)" if missed else ""
            missed = False
            yield Finding(status="ok", text=choice.line().replace(":", f"{used}:", 1))
        else:
            text = f"{choice.spec.id} cannot be used: {support.reason}"
            fix = support.fix or SERVICE
            yield Finding(status="warn" if missed else "ok", text=text, fix=fix if missed else "")
    if missed:
        yield Finding(
            status="warn",
            text="no sandbox can be used: runs that execute code of the model are refused",
            fix=SERVICE,
        )


@functools.cache
def facts(backend: str) -> dict[str, Any]:
    """What `rlcore_sandbox.isolation.probe` finds, once for each backend and process."""
    if sys.platform != "linux":
        return {"error": f"the sandbox requires Linux, found {sys.platform}"}
    with tempfile.TemporaryDirectory(prefix="rlcore-probe-") as parent:
        folder = str(create_sessions_folder(Path(parent)))
        command = [sys.executable, "-s", "-P", "-m", PROBE, backend, folder]
        if backend == "bubblewrap":
            command = restricted.bubblewrap_command(command, folder)
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
            found: dict[str, Any] = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            return {"error": f"no answer within {TIMEOUT_S:g} s"}
        except (OSError, ValueError) as error:
            lines = done.stderr.strip().splitlines() if isinstance(error, ValueError) else [str(error)]
            return {"error": lines[-1] if lines else "the process ended without an answer"}
    return found


def _unavailable(backend: str, found: dict[str, Any]) -> SandboxSupport:
    return SandboxSupport(reason=str(found["error"]), fix=_FIXES[backend])


def _checked_files() -> tuple[str, ...]:
    return ("the size of all files together is checked several times a second",)
