"""What the benchmarks of merging measure: whole processes, the bytes that have to move, and memory."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from comparison import Comparison

sys.path.insert(0, str(Path(__file__).parents[1] / "references"))

from worker import SAMPLE_S, anonymous_mb

CHUNK = 16 * 2**20
ROOM_MB = 250
"""Anonymous memory that a merge may take beyond what importing torch takes, however large the model."""
SIZES = {"1-gb": (1.0, 3.0), "4-gb": (4.0, 4.0)}
"""Gigabytes of what is merged, and the floor."""
IMPORTED = """
import torch
from pathlib import Path
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "RssAnon" in line))
"""


@dataclass(frozen=True, kw_only=True)
class Sides:
    """One merge by either side; commands get the output folder as their last argument."""

    ours: Sequence[str]
    peer: Sequence[str]
    sources: Sequence[Path]
    """Files that have to be read."""
    written: int
    """Bytes that have to be written."""
    out: Path

    def comparisons(self, name: str, *, gigabytes: float, floor: float) -> list[Comparison]:
        """Ours against the peer, against moving the bytes alone, and its memory against the budget."""
        torch_mb = int(subprocess.check_output([sys.executable, "-c", IMPORTED])) / 1024
        return [
            Comparison(name=name, ours=self._seconds(self.ours), peer=self._seconds(self.peer), floor=floor),
            # Starting takes a second, which counts at one gigabyte.
            Comparison(
                name=f"{name}-bytes",
                ours=self._seconds(self.ours),
                peer=self._bytes_seconds,
                floor=0.5 if gigabytes >= 4 else 0.25,
            ),
            Comparison(name=f"{name}-memory", ours=self._peak_mb, peer=torch_mb + ROOM_MB, floor=1.0, unit="MB"),
        ]

    def _seconds(self, command: Sequence[str]) -> Callable[[], float]:
        """Of the whole process."""

        def run() -> float:
            self._clear()
            begun = time.perf_counter()
            self._finish(self._start(command))
            return time.perf_counter() - begun

        return run

    def _peak_mb(self) -> float:
        """The most anonymous memory that our process has at a time."""
        self._clear()
        process, peak = self._start(self.ours), 0.0
        while process.poll() is None:
            with suppress(RuntimeError):  # it has just ended
                peak = max(peak, anonymous_mb(process.pid))
            time.sleep(SAMPLE_S)
        self._finish(process)
        return peak

    def _bytes_seconds(self) -> float:
        """Of reading what a merge reads and writing as much as it writes."""
        self._clear()
        self.out.mkdir()
        begun = time.perf_counter()
        buffer = bytearray(CHUNK)
        for source in self.sources:
            with source.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass
        with (self.out / "bytes").open("wb", buffering=0) as file:
            for start in range(0, self.written, CHUNK):
                file.write(memoryview(buffer)[: min(CHUNK, self.written - start)])
        return time.perf_counter() - begun

    def _start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen([*command, str(self.out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def _finish(self, process: subprocess.Popen[str]) -> None:
        _, errors = process.communicate()
        assert process.returncode == 0, errors[-2000:]
        found = sum(path.stat().st_size for path in self.out.glob("*.safetensors"))
        assert found > 0.98 * self.written, (found, self.written)

    def _clear(self) -> None:
        """Neither removing what the other side wrote nor bringing it to the disk is measured."""
        shutil.rmtree(self.out, ignore_errors=True)
        os.sync()


def every_size(sides: Callable[[Path, float], Sides]) -> list[Comparison]:
    """Three comparisons for each size of what ``sides`` makes of a folder and gigabytes.

    ``RLCORE_MERGE_SIZES=1-gb`` takes some of them, ``0.2`` gigabytes any size.
    """
    found = []
    for name in os.environ.get("RLCORE_MERGE_SIZES", ",".join(SIZES)).split(","):
        gigabytes, floor = SIZES[name] if name in SIZES else (float(name), 3.0)
        folder = Path(tempfile.mkdtemp(prefix="merge-"))
        atexit.register(shutil.rmtree, folder)
        found += sides(folder, gigabytes).comparisons(name, gigabytes=gigabytes, floor=floor)
    return found
