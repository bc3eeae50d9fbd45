"""Run ``rlcore …`` in forks of a process that has already imported the heavy libraries: one second instead of ten.

A fork behaves like a new process except for imports and for environment variables that libraries read on import.
Tests of these, of start-up, of signals and of hash order start a new process instead.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

IMPORTED = (
    *("rlcore.cli.run", "rlcore_trainer.controller.policy_gradient", "rlcore_rollout.sampler.local"),
    *("rlcore_rollout.engines.torch.engine", "rl_plugin_gsm8k_tools.dataset", "rl_plugin_string_equal.reward"),
    *("rl_plugin_gsm8k_tools.environment", "transformers.models.qwen2.modeling_qwen2"),
)
"""Modules that take seconds to import."""


def warm() -> None:
    """Import the modules that the command uses."""
    for module in IMPORTED:
        importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, "cannot fork a process with threads"


def become(arguments: Sequence[str], folder: Path, out: Path, err: Path | None = None) -> NoReturn:
    """Turn this process into ``rlcore ARGUMENTS`` in ``folder``, with its streams in one file or in two."""
    status = 70
    try:
        os.setsid()
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 1)
        os.dup2(1 if err is None else os.open(err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 2)
        sys.argv = ["rlcore", *arguments]
        sys.path[:0] = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
        from rlcore.cli import main

        status = main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def rlcore_command(
    arguments: Sequence[str],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 900.0,
) -> subprocess.CompletedProcess[str]:
    """Run ``rlcore ARGUMENTS`` in ``folder``. The return code is -9 after the timeout."""
    server = _server()
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place, "out"), Path(place, "err")
        request = {
            "arguments": list(arguments),
            "folder": str(folder),
            "environment": dict(os.environ if environment is None else environment),
            "out": str(out),
            "err": str(err),
            "timeout_s": timeout_s,
        }
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
            status = int(server.stdout.readline())
        except BaseException:  # also the timeout of the test: the next command must not read this reply
            _end(server)
            _server.cache_clear()
            raise
        stdout, stderr = (path.read_text(encoding="utf-8") if path.exists() else "" for path in (out, err))
    return subprocess.CompletedProcess(["rlcore", *arguments], status, stdout, stderr)


@cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.communicate()


def _serve() -> None:
    sys.path.pop(0)  # the folder of this file is not on the command's path
    warm()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os.environ.clear()
            os.environ.update(request["environment"])
            files = (Path(request[name]) for name in ("out", "err"))
            become(request["arguments"], Path(request["folder"]), *files)
        print(_status(child, request["timeout_s"]), flush=True)


def _status(child: int, timeout_s: float) -> int:
    until = time.monotonic() + timeout_s
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            until = float("inf")
        time.sleep(0.005)


if __name__ == "__main__":
    _serve()
