"""Processes of this machine, found by their environment."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def processes_with(*variables: str) -> dict[int, str]:
    """The command line of each process that has these environment variables (``NAME=VALUE``), by its id."""
    wanted, found = {variable.encode() for variable in variables}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to someone else
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = line.decode(errors="replace")
    return {process: line for process, line in found.items() if line}  # a zombie has none
