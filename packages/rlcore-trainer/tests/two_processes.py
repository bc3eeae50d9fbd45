"""Two joined processes of a run, without ``rlcore run``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlcore_trainer.distributed import launch


@contextmanager
def two_processes(code: str, *arguments: str, count: int = 2) -> Iterator[list[subprocess.Popen[str]]]:
    """Run Python code in two or more processes, which find the modules of the tests, and kill them at the end."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    path = ":".join([str(Path(__file__).parent), *sys.path])
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env={**launch._environment(index, count, store.port), "PYTHONPATH": path},
            stdout=-1,
            stderr=-1,
            text=True,
        )
        for index in range(count)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()
