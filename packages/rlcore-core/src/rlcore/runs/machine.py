"""The memory and the disk of this machine, and what this process uses of them. No heavy imports."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

GIB = 2**30
_noted = 0
"""The most memory of this process's own processes that `note_processes` found."""


def memory_bytes() -> int | None:
    """Total memory, or the limit of the control group if it is lower; None if it is unknown."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text(encoding="ascii").strip() if limit.is_file() else ""
    return min(total, int(text)) if text.isdigit() else total


def used_bytes() -> int:
    """The memory that this process uses now."""
    return _status("VmRSS") or peak_bytes()


def peak_bytes() -> int:
    """The most memory that this process used, with its processes that `note_processes` has noted."""
    own = _status("VmHWM")
    if own is None:
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return own + _noted


def note_processes() -> None:
    """Note the memory of the processes that this one has started, before they end.

    Pages of files and of shared memory are left out, since this process has most of them, too.
    """
    global _noted
    above = dict(_parents())
    found = {os.getpid()}
    while more := {process for process, parent in above.items() if parent in found} - found:
        found |= more
    peaks = [_anonymous_peak(process) for process in found - {os.getpid()}]
    _noted = max(_noted, sum(peaks))


def gpu_bytes(device: str) -> tuple[int, int] | None:
    """Total memory of a GPU and the most that torch has reserved of it; None for a CPU, or before torch is imported.

    Args:
        device: ``model.device``
    """
    torch: Any = sys.modules.get("torch")
    if device == "cpu" or torch is None or not torch.cuda.is_available():
        return None
    index = int(device.partition(":")[2] or 0)
    total = torch.cuda.get_device_properties(index).total_memory
    return int(total), int(torch.cuda.max_memory_reserved(index))


def free_bytes(folder: Path) -> int:
    """Free disk space where a folder is, or will be created."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def size_text(count: float) -> str:
    """A number of bytes as text, such as ``1.2 GiB`` or ``14 MiB``."""
    return (
        f"{count / GIB:.{2 if count < 10 * GIB else 1}f} GiB" if count >= GIB else f"{max(1, round(count / 2**20))} MiB"
    )


def _status(name: str, process: int | str = "self") -> int | None:
    """A field of a process's status in bytes; None on systems without ``/proc``, or if the process has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


def _anonymous_peak(process: int) -> int:
    peak, files, shared = (_status(name, process) or 0 for name in ("VmHWM", "RssFile", "RssShmem"))
    return max(0, peak - files - shared)


def _parents() -> Iterator[tuple[int, int]]:
    """Each process with its parent; nothing on systems without ``/proc``."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[1]
            yield int(path.parent.name), int(parent)
