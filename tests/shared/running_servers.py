"""Servers of ``rlcore serve`` in tests: of an offer in a thread, and of a command in a process."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rlcore.transport.network import TOKEN
from rlcore.transport.server import Offer, Server


class RunningServer:
    """A server in a thread, which ends with `stop`."""

    def __init__(self, offer: Offer, *, named: str, token: str, port: int, most: int, timeout_s: float) -> None:
        listening = socket.create_server(("127.0.0.1", port))
        self.port: int = listening.getsockname()[1]
        self.address, self.said = f"127.0.0.1:{self.port}", list[str]()
        self.server = Server(
            offer, listening, named=named, token=token, most=most, timeout_s=timeout_s, say=self.said.append
        )
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(timeout=10)
        assert not self._thread.is_alive()


@contextmanager
def serving(
    kind: str, *words: str, token: str, folder: Path | None = None, before: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command ``rlcore serve KIND`` on a free port, and its address. It is killed at the end.

    ``before`` are words of a command that starts it, such as those of ``ip netns exec``.
    """
    process = subprocess.Popen(
        [*before, sys.executable, "-u", "-m", "rlcore", "serve", kind, "--port", "0", *words],
        cwd=folder,
        env={**os.environ, TOKEN: token},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r" on (\S+), at most", line)
        assert found is not None, line + process.stdout.read()
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()
