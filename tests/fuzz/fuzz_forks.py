"""Run many commands fast: each one in a fork of a process that has imported the libraries, with limits.

Each of a few processes reads cases as JSON lines, and forks for each. The fork has its own session, home and temporary
folder, limits for memory and the size of files, and ends with the handlers that run at the exit of a process.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ALSO_IMPORTED = (
    *("rlcore.cli.data", "rlcore.cli.evaluate", "rlcore.cli.config", "rlcore.cli.plugins", "rlcore.doctor"),
    *("rlcore_merge.merging", "rlcore_merge.cli", "rlcore_compat.verl", "yaml", "pyarrow.parquet"),
)
HERE = Path(__file__).resolve().parent
MEMORY_BYTES = 12_000_000_000
"""Of address space, of which the libraries reserve much."""
FILE_BYTES = 1_000_000_000
TIMEOUT_S = 40.0
"""Of one command. The machine may be busy with other tests; alone, nearly all commands end within a second."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a command did."""

    status: int
    """Of the exit; negative for a signal."""
    out: str
    err: str
    seconds: float
    left: int
    """Processes that still run after the command."""


class Forks:
    """Processes that serve one case at a time each. The first imports the libraries, and the others are its forks."""

    def __init__(self, count: int) -> None:
        pairs = [socket.socketpair() for _ in range(count)]
        theirs = [there.fileno() for _, there in pairs]
        paths = [str(HERE.parent / "repo"), str(HERE), os.environ.get("PYTHONPATH", "")]
        fixed = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, __file__, *map(str, theirs)]
        self._server = subprocess.Popen(command, pass_fds=theirs, env={**os.environ, **fixed})
        self._streams = []
        for here, there in pairs:
            there.close()
            self._streams.append(here.makefile("rw", encoding="ascii"))
            here.close()

    def run(self, number: int, arguments: list[str], folder: Path, environment: Mapping[str, str]) -> Outcome:
        """Run ``rlcore ARGUMENTS`` in a folder, in a fork of one of the processes."""
        stream = self._streams[number]
        request = {"arguments": arguments, "folder": str(folder), "environment": dict(environment)}
        stream.write(json.dumps(request) + "\n")
        stream.flush()
        reply = json.loads(stream.readline())
        out, err = ((folder / name).read_bytes().decode("utf-8", "backslashreplace") for name in (".out", ".err"))
        return Outcome(out=out, err=err, **reply)

    def close(self) -> None:
        """End the processes: their streams end."""
        for stream in self._streams:
            stream.close()
        self._server.wait()


def _child(request: Mapping[str, Any]) -> None:
    """Become the command. Never returns."""
    folder, status = Path(request["folder"]), 99
    sys.dont_write_bytecode = True
    try:
        os.setsid()
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream, name in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), stream)
        os.environ.update({"HOME": str(folder / ".home"), "TMPDIR": str(folder / ".tmp"), **request["environment"]})
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.path[:0] = [place for place in os.environ.get("FUZZ_SITE", "").split(os.pathsep) if place]
        sys.argv = ["rlcore", *request["arguments"]]
        from rlcore.cli import main

        try:
            status = main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        atexit._run_exitfuncs()  # type: ignore[attr-defined]
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(status)


def _start(streams: list[int]) -> None:
    """Import the libraries, and serve each stream in a process of its own."""
    from preloaded import IMPORTED

    for name in (*IMPORTED, *ALSO_IMPORTED):
        importlib.import_module(name)
    atexit._clear()  # type: ignore[attr-defined]
    gc.freeze()  # a collection in a fork would copy all memory
    children = []
    for stream in streams[1:]:
        if (child := os.fork()) == 0:
            _serve(stream, streams)
            os._exit(0)
        children.append(child)
    _serve(streams[0], streams)
    for child in children:
        os.waitpid(child, 0)
    os._exit(0)  # the libraries have handlers that are gone


def _serve(own: int, streams: list[int]) -> None:
    for stream in streams:
        if stream != own:
            os.close(stream)
    with socket.socket(fileno=own).makefile("rw", encoding="ascii") as file:
        for line in file:
            request = json.loads(line)
            started = time.monotonic()
            if (child := os.fork()) == 0:
                _child(request)
            status = _wait(child, started + TIMEOUT_S)
            reply = {"status": status, "left": _end_group(child), "seconds": time.monotonic() - started}
            file.write(json.dumps(reply) + "\n")
            file.flush()


def _wait(child: int, until: float) -> int:
    pause = 0.001
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            until = float("inf")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)


def _end_group(group: int) -> int:
    """End the processes that remain in a session; the number of attempts that found one."""
    for _ in range(20):  # a process that ends by itself needs a moment
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return 0
        time.sleep(0.05)
    os.killpg(group, signal.SIGKILL)
    return 1


if __name__ == "__main__":
    _start([int(text) for text in sys.argv[1:]])
