"""The memory and the disk of this machine, and what this process uses of them. No heavy imports."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

GIB = 2**30
READ_EVERY_S = 0.02
"""Seconds after which `PhaseMemory` reads the memory of the process again. A reading takes 20 µs."""
_noted = 0
"""The most memory of this process's own processes that `note_processes` found."""
_reserved = 0
"""The most memory of a GPU before `PhaseMemory` has reset torch's counter."""


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
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return peak_bytes()


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
    if (cuda := _cuda(device)) is None:
        return None
    index = _index(device)
    return int(cuda.get_device_properties(index).total_memory), max(_reserved, int(cuda.max_memory_reserved(index)))


class PhaseMemory:
    """The most memory that each phase of a step uses: of the GPU, or of this process if there is none.

    torch counts the memory of a GPU. That of this process is read again and again in a thread, because a reset of the
    kernel's counter would change what programs outside measure.

    Args:
        device: ``model.device``
    """

    def __init__(self, device: str) -> None:
        self._device, self._peak, self._lock, self._ended = device, 0, threading.Lock(), threading.Event()

    def __enter__(self) -> Self:
        if _cuda(self._device) is None:
            threading.Thread(target=self._watch, name="rlcore-memory", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def take(self) -> float:
        """Return the most memory since the last call in GiB."""
        if (cuda := _cuda(self._device)) is None:
            self._read()
            with self._lock:
                peak, self._peak = self._peak, 0
            return peak / GIB
        global _reserved
        peak = int(cuda.max_memory_reserved(_index(self._device)))
        _reserved = max(_reserved, peak)
        cuda.reset_peak_memory_stats(_index(self._device))
        return peak / GIB

    def _watch(self) -> None:
        while not self._ended.wait(READ_EVERY_S):
            self._read()

    def _read(self) -> None:
        used = used_bytes()
        with self._lock:
            self._peak = max(self._peak, used)


def _cuda(device: str) -> Any:
    """``torch.cuda``; None for a CPU, or before torch is imported."""
    torch: Any = sys.modules.get("torch")
    return None if device == "cpu" or torch is None or not torch.cuda.is_available() else torch.cuda


def _index(device: str) -> int:
    return int(device.partition(":")[2] or 0)


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
