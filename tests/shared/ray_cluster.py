"""A Ray cluster whose nodes are processes on this machine."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from running_processes import processes_with

MARK = "RLCORE_TEST_CLUSTER"
"""An environment variable by which the processes of a cluster are found."""
START = "import sys; sys.modules['grpc'] = None; from ray.scripts.scripts import main; main()"
"""Where ``grpc`` can be imported, Ray opens a port for remote clients, which no option prevents."""


class RayCluster:
    """A cluster whose nodes have one core each.

    Args:
        ip: the address of the first node
    """

    def __init__(self, ip: str = "127.0.0.1") -> None:
        with socket.socket() as free:
            free.bind((ip, 0))
            self.port = free.getsockname()[1]
        self.address = f"{ip}:{self.port}"
        self.variables = {
            "RAY_AUTH_TOKEN": secrets.token_hex(16),
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        }
        self.mark = secrets.token_hex(8)
        self._nodes: list[subprocess.Popen[str]] = []
        self.start("--head", "--include-dashboard=false", f"--port={self.port}", f"--node-ip-address={ip}")

    def start(self, *words: str, before: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Start a node, also a second time: Ray gives it 30 s, which a busy machine may exceed.

        Args:
            words: options of ``ray start``
            before: the beginning of the command, which runs the rest elsewhere
        """
        known, options = self.nodes(), ("--num-cpus=1", "--object-store-memory=200000000", "--disable-usage-stats")
        for _ in range(2):
            node = subprocess.Popen(
                [*before, sys.executable, "-c", START, "start", "--block", *options, *words],
                env={**os.environ, **self.variables, MARK: self.mark},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            self._nodes.append(node)
            while node.poll() is None:
                if self.nodes() > known:
                    return node
        assert node.stdout is not None
        raise AssertionError(node.stdout.read())

    def nodes(self) -> int:
        """The number of nodes that the cluster knows as alive."""
        code = (
            f"import ray; ray.init(address={self.address!r}, log_to_driver=False, configure_logging=False)\n"
            "print(sum(node['Alive'] for node in ray.nodes()), 'nodes')"
        )
        if not self._nodes:
            return 0
        asked = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **self.variables}, capture_output=True, text=True
        )
        return int(asked.stdout.split()[0]) if asked.returncode == 0 else 0  # Ray may print messages after it

    def workers(self) -> list[int]:
        """The processes of this cluster that sample."""
        return worker_processes(self.mark)

    def close(self) -> None:
        """End all nodes."""
        for node in self._nodes:
            node.terminate()
        for node in self._nodes:
            node.communicate(timeout=60)


class ClusterRun:
    """A run in a process of its own, which can use a cluster."""

    def __init__(self, cluster: RayCluster, folder: Path, *words: str) -> None:
        self.folder = folder
        self._output = folder / "printed.txt"
        with self._output.open("w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rlcore", "run", *words],
                cwd=folder,
                env={**os.environ, **cluster.variables},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def printed(self) -> str:
        return self._output.read_text(encoding="utf-8")

    def wait_for(self, text: str) -> None:
        assert until(lambda: text in self.printed or self.process.poll() is not None, 240), self.printed
        assert text in self.printed, self.printed

    def end(self, status: int = 0) -> None:
        assert self.process.wait(timeout=300) == status, self.printed


def until(reached: Callable[[], bool], timeout_s: float) -> bool:
    """Whether something is reached in time."""
    deadline = time.monotonic() + timeout_s
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def worker_processes(mark: str) -> list[int]:
    """The processes of a cluster that sample, by their environment and the beginning of their command lines."""
    found = processes_with(f"{MARK}={mark}")
    return sorted(process for process, line in found.items() if line.startswith("ray::SamplerWorker"))
