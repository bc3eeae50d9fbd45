"""Run many commands fast: each one in a fork of a process that has imported the libraries, with limits.

A server process reads cases as JSON lines, and forks for each. The fork has its own session, home and temporary folder,
limits for memory, processor time and the size of files, and ends with the handlers that run at the exit of a process.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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


@dataclass
class Forks:
    """One server process, started on first use."""

    environment: Mapping[str, str] = field(default_factory=dict)
    _server: subprocess.Popen[str] | None = None

    def run(self, arguments: list[str], folder: Path, environment: Mapping[str, str]) -> Outcome:
        """Run ``rlcore ARGUMENTS`` in a folder."""
        if self._server is None:
            paths = [str(HERE.parent / "repo"), str(HERE), os.environ.get("PYTHONPATH", "")]
            fixed = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(paths)}
            self._server = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **fixed, **self.environment},
            )
            atexit.register(self.close)
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        request = {"arguments": arguments, "folder": str(folder), "environment": dict(environment)}
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        reply = json.loads(self._server.stdout.readline())
        out, err = ((folder / name).read_bytes().decode("utf-8", "backslashreplace") for name in (".out", ".err"))
        return Outcome(out=out, err=err, **reply)

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.kill()
            self._server.communicate()
            self._server = None


def _child(request: Mapping[str, Any]) -> None:
    """Become the command. Never returns."""
    folder, status = Path(request["folder"]), 99
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


def _serve() -> None:
    from preloaded import IMPORTED

    for name in ("rlcore.cli.data", "rlcore.cli.evaluate", "rlcore.cli.config", "rlcore.cli.plugins", "rlcore.doctor"):
        __import__(name)
    for name in ("rlcore_merge.merging", "rlcore_merge.cli", "rlcore_compat.verl", "yaml", "pyarrow.parquet", "click"):
        __import__(name)
    for name in IMPORTED:
        __import__(name)
    atexit._clear()  # type: ignore[attr-defined]
    for line in sys.stdin:
        request = json.loads(line)
        started = time.monotonic()
        if (child := os.fork()) == 0:
            _child(request)
        status = _wait(child, started + TIMEOUT_S)
        left = _end_group(child)
        print(json.dumps({"status": status, "seconds": time.monotonic() - started, "left": left}), flush=True)


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
    _serve()
