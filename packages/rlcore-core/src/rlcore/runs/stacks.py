"""The stacks of all threads of a process, in the directory of its run: where it crashed, or where it hangs."""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIGNAL = signal.SIGUSR1
"""Makes a process write its stacks. It works in every process that is not stopped, also within native code."""
WRITTEN_S = 1.0
"""Time for a process to write its stacks."""


def stacks_file(run: Path, rank: int) -> Path:
    """The file of a process with the stacks."""
    return run / (f"stacks-{rank}.txt" if rank else "stacks.txt")


@contextmanager
def stacks_written(run: Path, rank: int) -> Iterator[None]:
    """Append the stacks to `stacks_file` at each `SIGNAL`, and if native code crashes. An empty file is removed."""
    path, before = stacks_file(run, rank), faulthandler.is_enabled()
    with path.open("a", encoding="utf-8") as file:
        if not before:  # else the user wants them on stderr
            faulthandler.enable(file)
        faulthandler.register(SIGNAL, file)
        try:
            yield
        finally:
            faulthandler.unregister(SIGNAL)
            if not before:
                faulthandler.disable()
    if path.is_file() and not path.stat().st_size:
        path.unlink()
