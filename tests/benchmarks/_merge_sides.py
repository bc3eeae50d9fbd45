"""Measurements for the merge benchmarks: time of the process, time to copy the bytes, and memory."""

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
from dataclasses import dataclass, replace
from pathlib import Path

from comparison import Absent, Comparison

sys.path.insert(0, str(Path(__file__).parents[1] / "references"))

from worker import SAMPLE_S, anonymous_mb

CHUNK = 16 * 2**20
ROOM_MB = 250
"""Limit of anonymous memory for a merge of any size, in addition to importing torch."""
SIZES = {"1-gb": (1.0, 3.0), "4-gb": (4.0, 4.0)}
"""Size of the model in GB, and the floor."""
SMALLEST = "one-layer"
IMPORTED = """
import torch
from pathlib import Path
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "RssAnon" in line))
"""


@dataclass(frozen=True, kw_only=True)
class Sides:
    """One merge on each side. The output folder is the last argument of a command."""

    ours: Sequence[str]
    peer: Sequence[str] | Absent
    sources: Sequence[Path]
    """Files to read."""
    written: int
    """Bytes to write."""
    out: Path

    def comparisons(self, name: str, *, gigabytes: float, floor: float) -> list[Comparison]:
        """Our time against the peer and against copying the bytes, and our memory against the budget."""
        torch_mb = int(subprocess.check_output([sys.executable, "-c", IMPORTED])) / 1024
        peer = self.peer if isinstance(self.peer, Absent) else self._seconds(self.peer)
        return [
            Comparison(name=name, ours=self._seconds(self.ours), peer=peer, floor=floor),
            # Starting takes a second, which matters for 1 GB.
            Comparison(
                name=f"{name}-bytes",
                ours=self._seconds(self.ours),
                peer=self._bytes_seconds,
                floor=0.5 if gigabytes >= 4 else 0.25,
            ),
            Comparison(name=f"{name}-memory", ours=self._peak_mb, peer=torch_mb + ROOM_MB, floor=1.0, unit="MB"),
        ]

    def _seconds(self, command: Sequence[str]) -> Callable[[], float]:
        """Seconds of the process."""

        def run() -> float:
            self._clear()
            begun = time.perf_counter()
            self._finish(self._start(command))
            return time.perf_counter() - begun

        return run

    def _peak_mb(self) -> float:
        """The peak of anonymous memory of our process."""
        self._clear()
        process, peak = self._start(self.ours), 0.0
        while process.poll() is None:
            with suppress(RuntimeError):  # the process has just ended
                peak = max(peak, anonymous_mb(process.pid))
            time.sleep(SAMPLE_S)
        self._finish(process)
        return peak

    def _bytes_seconds(self) -> float:
        """Seconds to read the sources and to write the same number of bytes."""
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
        """Remove the output and flush the disk before the measurement."""
        shutil.rmtree(self.out, ignore_errors=True)
        os.sync()


def every_size(sides: Callable[[Path, float], Sides], peer: Path, *, smoke: bool) -> list[Comparison]:
    """Three comparisons per size. ``sides`` makes the commands from a folder and a size in GB.

    ``RLCORE_MERGE_SIZES=1-gb`` selects sizes; a number such as ``0.2`` is a size in GB. A smoke run uses the smallest
    model that ``sides`` can make, and skips the peer if its interpreter ``peer`` does not exist.
    """
    found = []
    sizes = SIZES | {SMALLEST: (0.0, 3.0)}
    chosen = SMALLEST if smoke else os.environ.get("RLCORE_MERGE_SIZES", ",".join(SIZES))
    for name in chosen.split(","):
        gigabytes, floor = sizes[name] if name in sizes else (float(name), 3.0)
        folder = Path(tempfile.mkdtemp(prefix="merge-"))
        atexit.register(shutil.rmtree, folder)
        made = sides(folder, gigabytes)
        if smoke and not peer.exists():
            made = replace(made, peer=Absent(f"{peer} does not exist; see tests/references/README.md"))
        found += made.comparisons(name, gigabytes=gigabytes, floor=floor)
    return found
