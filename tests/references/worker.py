"""A long-lived process that runs one step per request, with a `Gate` inside and a `Worker` outside.

The process writes one JSON object per line to its original standard output. All other output goes to standard error.
Its memory is read from outside, so the measurement does not slow the process down.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SAMPLE_S = 0.002


def anonymous_mb(pid: int) -> float:
    """Anonymous memory of a process in MB. Raises `RuntimeError` if it has ended."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no RssAnon")


class Gate:
    """The inside. ``wait`` reports the last step and returns when the next step starts."""

    def __init__(self) -> None:
        self._reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._started: float | None = None

    def wait(self, **report: Any) -> bool:
        """Report the last step and its seconds. Returns False when the process should end."""
        if self._started is not None:
            report["seconds"] = time.perf_counter() - self._started
        print(json.dumps(report), file=self._reports, flush=True)
        go_on = os.read(0, 1) == b"g"
        self._started = time.perf_counter()
        return go_on


class Worker:
    """The outside. ``imported_mb`` is the anonymous memory after the imports."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            list(command),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._errors: list[str] = []
        threading.Thread(target=self._drain, daemon=True).start()
        self.pid = int(self._answer()["pid"])
        self.imported_mb = anonymous_mb(self.pid)
        self.peak_mb = 0.0
        """The peak of anonymous memory in a sampled step, above the imported libraries."""

    def step(self, *, sampled: bool = False) -> dict[str, Any]:
        """Run one step and return its report with ``seconds``. With ``sampled``, measure its memory."""
        assert self._process.stdin is not None
        self._process.stdin.write("g")
        self._process.stdin.flush()
        if not sampled:
            return self._answer()
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(done,))
        watcher.start()
        try:
            return self._answer()
        finally:
            done.set()
            watcher.join()

    def close(self) -> None:
        """End the process if it still runs."""
        self._process.terminate()
        self._process.wait(timeout=30)

    def _watch(self, done: threading.Event) -> None:
        while not done.wait(SAMPLE_S) and self._process.poll() is None:
            self.peak_mb = max(self.peak_mb, anonymous_mb(self.pid) - self.imported_mb)

    def _drain(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-60:], line]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(timeout=30)
            raise RuntimeError(f"{self._process.args} ended\n{''.join(self._errors)}")
        answer: dict[str, Any] = json.loads(line)
        return answer
