"""Start servers of OpenEnv's own package, from the project ``tests/references/openenv``."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "references"))

import peers

START_S = 120.0


@contextmanager
def openenv_servers() -> Iterator[str]:
    """The URL below which each environment of ``serve.py`` has a path."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(peers.synced("openenv")), str(peers.HERE / "openenv/serve.py"), str(port)]
    with subprocess.Popen(command, env=peers.environment()) as process:
        try:
            _wait_for(f"http://127.0.0.1:{port}/doors/health", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"there is no server at {url}")


__all__ = ["openenv_servers"]
