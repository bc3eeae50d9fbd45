"""``rlcore …`` in children of one process that has imported what takes long: a second, where a process takes ten.

A child is as good as a process of its own, but for what it would have imported and for the variables that libraries
read while they are imported. Tests of those, of the start itself, of signals, of the order of hashes start their own.
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
    *("rlcore.cli.run", "rlcore_trainer.policy_gradient", "rlcore_rollout.executors.local"),
    *("rlcore_rollout.engines.torch.engine", "rl_plugin_gsm8k_tools.dataset", "rl_plugin_string_equal.reward"),
    *("rl_plugin_gsm8k_tools.environment", "transformers.models.qwen2.modeling_qwen2"),
)
"""What takes seconds to import, and takes them in a child again when it is left out."""


def warm() -> None:
    """Import what the command imports."""
    for module in IMPORTED:
        importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads must not be forked"


def become(arguments: Sequence[str], folder: Path, said: Path, complained: Path | None = None) -> NoReturn:
    """Be ``rlcore ARGUMENTS`` in ``folder`` from here on, which writes into files: both streams into one, or two."""
    status = 70
    try:
        os.setsid()
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 1)
        os.dup2(1 if complained is None else os.open(complained, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 2)
        sys.argv = ["rlcore", *arguments]
        from rlcore.cli import main

        status = main()
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
    """What ``rlcore ARGUMENTS`` in ``folder`` ended with and said; a returncode of -9 when it took too long."""
    server = _server()
    with tempfile.TemporaryDirectory() as place:
        said, complained = Path(place, "out"), Path(place, "err")
        request = {
            "arguments": list(arguments),
            "folder": str(folder),
            "environment": dict(os.environ if environment is None else environment),
            "said": str(said),
            "complained": str(complained),
            "timeout_s": timeout_s,
        }
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
            status = int(server.stdout.readline())
        except BaseException:  # of the test's own deadline, too: the next command must not read this one's answer
            _end(server)
            _server.cache_clear()
            raise
        stdout, stderr = (path.read_text(encoding="utf-8") if path.exists() else "" for path in (said, complained))
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
    sys.path.pop(0)  # the folder of this file, which the command has not
    warm()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os.environ.clear()
            os.environ.update(request["environment"])
            files = (Path(request[name]) for name in ("said", "complained"))
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
