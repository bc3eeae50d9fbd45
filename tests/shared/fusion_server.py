"""A sandbox service with the interface of SandboxFusion, which runs programs without isolation, in a thread.

It is for programs of tests. ``failures`` are given instead of results, one after the other. For hostile programs, it
runs each one in a container that bubblewrap creates, as services do.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Failure = tuple[int, bytes] | Callable[[], tuple[int, bytes]]
SANDBOX_ERROR = (200, json.dumps({"status": "SandboxError", "message": "no pod"}).encode())
HUNG = (200, json.dumps({"status": "Failed", "message": "", "run_result": {"status": "Error", "stderr": "x"}}).encode())


class FusionServer:
    """Runs while it is entered.

    Args:
        contained: run each program in a container of its own: without network, with a read-only system, and with
            processes of its own. The number of processes, system calls and memory are not limited.
    """

    def __init__(self, *, contained: bool = False) -> None:
        self.contained = contained
        self.failures: list[Failure] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.bodies.append(body)
                server.keys.append(self.headers["Authorization"])
                failure = server.failures.pop(0) if server.failures else None
                status, data = failure() if callable(failure) else failure or server.answer(body)
                if status == 0:  # drop the connection
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *arguments: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, body: dict[str, Any]) -> tuple[int, bytes]:
        """Run a program."""
        return 200, json.dumps(run_code(body, contained=self.contained)).encode()

    def __enter__(self) -> FusionServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def container(folder: str) -> list[str]:
    """The beginning of a command that runs in a container with this folder."""
    shown = [sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache"]
    binds = [word for path in dict.fromkeys(shown) if os.path.exists(path) for word in ("--ro-bind", path, path)]
    return [
        *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--uid", "1000", "--gid", "1000"),
        *("--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
        *binds,
        *("--bind", folder, folder, "--chdir", folder, "--"),
    ]


def run_code(body: dict[str, Any], *, contained: bool = False) -> dict[str, Any]:
    """The answer to ``POST /run_code``, with the limit of the service on what programs print."""
    assert body["language"] == "python"
    with tempfile.TemporaryDirectory(prefix="fusion-", ignore_cleanup_errors=True) as folder:
        for name, content in body["files"].items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(content))
        Path(folder, "program.py").write_text(body["code"], encoding="utf-8")
        start = time.monotonic()
        process = subprocess.Popen(
            [*(container(folder) if contained else []), sys.executable, "program.py"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"], "TMPDIR": folder},
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=body["run_timeout"])
            state = "Finished"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            state = "TimeLimitExceeded"
        kill_processes_in(Path(folder))
        paths = {name: Path(folder, name) for name in body["fetch_files"]}
        found = {name: path.read_bytes() for name, path in paths.items() if path.is_file()}
        return {
            "status": "Success" if state == "Finished" and process.returncode == 0 else "Failed",
            "message": "",
            "compile_result": None,
            "run_result": {
                "status": state,
                "execution_time": time.monotonic() - start,
                "return_code": process.returncode if state == "Finished" else None,
                "stdout": stdout[: 2**20],
                "stderr": stderr[: 2**20],
            },
            "executor_pod_name": None,
            "files": {name: base64.b64encode(data).decode() for name, data in found.items()},
        }


def kill_processes_in(folder: Path) -> None:
    """Kill what the code has left behind, as the end of the service's container does."""
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if link.readlink().is_relative_to(folder):
                os.kill(int(link.parent.name), signal.SIGKILL)
