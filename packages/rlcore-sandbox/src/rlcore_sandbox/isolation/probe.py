"""Tries a backend in processes of its own: ``python -m rlcore_sandbox.isolation.probe BACKEND FOLDER``.

Prints what it found as JSON: ``{"error": reason}``, or the facts that the guarantees depend on.
"""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace
from typing import Any

from . import landlock, namespaces, prepare, restricted, seccomp

LIMITS = SimpleNamespace(memory_mb=64, processes=4, files=64, file_mb=1)


def facts(backend: str, folder: str) -> dict[str, Any]:
    """Start a session, and return what is true in it."""
    version = landlock.version()
    if not seccomp.supported():
        return {"error": "filters of system calls are available on x86-64 and 64-bit ARM only"}
    if backend != "namespaces" and version < restricted.NEEDED_LANDLOCK:
        return {"error": f"landlock of version {restricted.NEEDED_LANDLOCK} (Linux 6.2) is required, found {version}"}
    try:
        prepared = prepare(backend, LIMITS, folder)
        answer, theirs = os.pipe()
        scratch = os.path.join(folder, "probe")
        os.mkdir(scratch, 0o700)
        child = prepared.fork()
        if not child:
            _report(prepared, scratch, theirs)
        os.close(theirs)
        with os.fdopen(answer, "rb") as file:
            found: dict[str, Any] = json.loads(file.read() or b'{"error": "the process ended"}')
        os.waitpid(child, 0)
        os.rmdir(scratch)
    except OSError as error:
        return {"error": str(error)}
    return {"landlock": version, "root": _is_root(prepared), **found}


def _report(prepared: Any, scratch: str, descriptor: int) -> None:
    """Confine this process, and write what it finds."""
    try:
        prepared.enter(scratch)
        with open(os.path.join(scratch, "file"), "w", encoding="ascii") as file:
            file.write("text")
        os.remove(file.name)
        with open(os.path.join(os.path.dirname(os.__file__), "this.py"), encoding="utf-8") as file:
            file.read()
        found = {"error": flaw} if (flaw := _flaw()) else {}
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    os.write(descriptor, json.dumps(found).encode())
    os._exit(0)


def _flaw() -> str:
    """What code could do although it must not; empty if nothing is found."""
    import socket

    hidden = ["/etc/passwd"]
    if landlock.version():
        hidden += ["/proc/1/environ", os.path.abspath(__file__)]
    for path in hidden:
        try:
            with open(path, "rb"):
                return f"{path} can be read"
        except OSError:
            continue
    try:
        socket.socket().close()
    except OSError:
        return ""
    return "sockets can be created"


def _is_root(prepared: Any) -> bool:
    return not isinstance(prepared, namespaces.Prepared) and prepared.user is None and os.geteuid() == 0


if __name__ == "__main__":
    print(json.dumps(facts(sys.argv[1], sys.argv[2])))
