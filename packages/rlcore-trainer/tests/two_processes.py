"""Two joined processes of a run, without ``rlcore run``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlcore_trainer.distributed.local_ranks import local_environment, rank_variables


@contextmanager
def two_processes(code: str, *arguments: str, count: int = 2) -> Iterator[list[subprocess.Popen[str]]]:
    """Run Python code in two or more processes, which find the modules of the tests, and kill them at the end."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    path = ":".join([str(Path(__file__).parent), *sys.path])
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env={**local_environment(rank_variables(index, count, "127.0.0.1", store.port)), "PYTHONPATH": path},
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
