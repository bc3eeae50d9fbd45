"""The zygote process, as the host sees it: starts it, asks it for sessions, and ends it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path

from rlcore.errors import SandboxFailure
from rlcore.types import SandboxLimits

from rlcore_sandbox.inside.processes import STOPS
from rlcore_sandbox.isolation import started_as

START_S = 120.0
"""Time for the imports of a zygote, on a busy machine."""
END_S = 10.0
MODULE = "rlcore_sandbox.inside.zygote"
KEPT_VARIABLES = ("HOME", "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "TMPDIR")
"""Variables that the imports may need, such as for matplotlib's cache of fonts. Sessions do not see them."""
LOG_CHARACTERS = 2000
REMOVE = 'exec 3<&0; { read -r _ <&3; for _ in 1 2 3 4 5; do rm -rf -- "$1" && exit; sleep 1; done; } &'
"""Waits in the background for the end of a pipe, and removes a folder, in which a session may still write."""


class ZygoteProcess:
    """A running zygote. Its methods may be called from any thread.

    Raises:
        SandboxFailure: it cannot be started.
    """

    def __init__(self, backend: str, limits: SandboxLimits) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rlcore-sandbox-"))
        self._life = _removed_with_this_process(self._folder)
        self._log = self._folder / "zygote.log"
        self._sessions = create_sessions_folder(self._folder)
        self._lock = threading.Lock()
        self._count = 0
        self._unreachable = False
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-s", "-P", "-m", MODULE, str(theirs.fileno())]
        started: Future[subprocess.Popen[bytes]] = Future()
        threading.Thread(
            target=self._run,
            args=(started_as(backend, command, str(self._sessions)), theirs, started),
            name="rlcore-sandbox",
            daemon=True,
        ).start()
        try:
            self._process = started.result()
        except SandboxFailure:
            self._control.close()
            self._remove()
            raise
        first = {"backend": backend, "limits": asdict(limits), "folder": str(self._sessions)}
        try:
            self._control.settimeout(START_S)
            self._control.send(json.dumps(first).encode())
            ready = self._control.recv(64)
            self._control.settimeout(END_S)
        except OSError as error:
            ready, reason = b"", f": {error}"
        else:
            reason = ""
        if ready != b"ready":
            log_text = self.log()
            self.close()
            raise SandboxFailure(f"the process that starts sandboxes did not start{reason}{log_text}")

    def _run(self, command: list[str], theirs: socket.socket, started: Future[subprocess.Popen[bytes]]) -> None:
        """Run the process. This thread lives as long, because the kernel ends the process with its parent's thread."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # the process inherits it, and bubblewrap keeps it
        try:
            with theirs, open(os.open(self._log, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as log:
                process = subprocess.Popen(
                    command,
                    env=_environment(),
                    cwd=self._sessions,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except OSError as error:
            started.set_exception(SandboxFailure(f"the process that starts sandboxes cannot be started: {error}"))
            return
        started.set_result(process)
        process.wait()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return not self._unreachable and self._process.poll() is None

    def log(self) -> str:
        """The end of what it wrote to stderr, on lines of its own; empty if there is nothing."""
        try:
            text = self._log.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""
        return f"\n{text[-LOG_CHARACTERS:]}" if text else ""

    def open(self, descriptors: list[int]) -> str:
        """Fork a session, and return its name.

        Args:
            descriptors: its connection, stdout, stderr, and the pipe that reports its end

        Raises:
            SandboxFailure: the zygote has ended.
        """
        with self._lock:
            self._count += 1
            name = f"session-{self._count}"
            self._send({"open": name}, descriptors)
        return name

    def kill(self, name: str) -> None:
        """Kill a session. One that has ended already is ignored.

        Raises:
            SandboxFailure: the zygote has ended.
        """
        with self._lock:
            self._send({"kill": name})

    def close(self) -> None:
        """End it and all its sessions. A second call does nothing."""
        with self._lock:
            self._control.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._remove()

    def lose(self) -> None:
        """Do not use it again: it has ended, which this process may not have noticed yet."""
        self._unreachable = True

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._life >= 0:
            os.close(self._life)
            self._life = -1

    def _send(self, message: dict[str, str], descriptors: list[int] | None = None) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], descriptors or [])
        except OSError as error:
            self._unreachable = True
            raise SandboxFailure(f"the process that starts sandboxes has ended ({error}){self.log()}") from None


def _removed_with_this_process(folder: Path) -> int:
    """Have a folder removed when this process has ended, however it ends: by a process that waits for that.

    Returns: the descriptor whose end it waits for, -1 on a machine without a shell
    """
    reading, writing = os.pipe()
    try:
        subprocess.run(
            ["/bin/sh", "-c", REMOVE, "sh", str(folder)],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            start_new_session=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        os.close(writing)
        return -1
    finally:
        os.close(reading)
    return writing


def create_sessions_folder(parent: Path) -> Path:
    """Create the folder of `rlcore_sandbox.isolation.prepare`, as the only folder in `parent`.

    Sessions of the backend ``namespaces`` may read what is below the parent, because rules of landlock for a mount
    point itself have no effect. Sessions of another user pass through the parent.
    """
    parent.chmod(0o711)
    folder = parent / "sessions"
    folder.mkdir()
    return folder


def _environment() -> dict[str, str]:
    """The environment of a zygote: nothing of the host's secrets, and nothing that changes how code behaves."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    single_threaded = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {
        "PATH": os.defpath,
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "MPLBACKEND": "agg",
        "MATPLOTLIBRC": os.devnull,
        **single_threaded,
        **kept,
    }
