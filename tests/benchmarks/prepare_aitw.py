"""``rlcore data prepare aitw`` on 50,000 generated steps, against the straightforward way, and its growth of memory."""

from __future__ import annotations

import atexit
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _prepare_straightforward import prepare as prepare_straightforward
from _recorded_screens import write_steps
from comparison import Comparison
from rl_plugin_aitw.dataset import PrepareConfig, prepare

VERSIONS = ("rl-plugin-aitw", "pyarrow", "ijson", "orjson", "pandas", "pillow")
STEPS, FEW_STEPS = 50_000, 5_000
MOST_MB = 24.0
"""Growth of the peak memory from 5,000 to 50,000 steps: the places of labels, ids of episodes, and noise."""

ONE_RUN = """
import re, sys, threading, time
from pathlib import Path
from rl_plugin_aitw.dataset import PrepareConfig, prepare

def anonymous_mb():
    return int(re.search(r"RssAnon:\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1]) / 1024

def watch():
    while True:
        most[0] = max(most[0], anonymous_mb())
        time.sleep(0.002)

source, images, labels, out = sys.argv[1:]
most = [imported := anonymous_mb()]
threading.Thread(target=watch, daemon=True).start()
prepare(PrepareConfig(source=[source], images=images, labels=labels, memory=True, out=out, overwrite=True))
print(most[0] - imported)
"""
"""A process that prepares once, with pseudo-labels, and prints the peak of its anonymous memory above its imports."""


def ours(folder: Path, *, labels: bool = False) -> float:
    """Prepare, with or without the memory of the labels; the seconds of all steps."""
    started = time.perf_counter()
    summary = prepare(
        PrepareConfig(
            source=[str(folder / "data.json")],
            images=str(folder / "images"),
            labels=str(folder / "labels.jsonl") if labels else None,
            memory=labels,
            out=str(folder / "ours.parquet"),
            overwrite=True,
        )
    )
    seconds = time.perf_counter() - started
    assert summary["rows"] == summary["steps"]
    return seconds


def peer(folder: Path, *, labels: bool = False) -> float:
    """The same with the straightforward way."""
    started = time.perf_counter()
    file = folder / "labels.jsonl" if labels else None
    rows = prepare_straightforward(folder / "data.json", folder / "images", file, folder / "peer.parquet")
    assert rows == int(folder.name)
    return time.perf_counter() - started


def peak_mb(folder: Path) -> float:
    """The peak of the anonymous memory of a process that prepares once, above its imports, in MB."""
    names = ("data.json", "images", "labels.jsonl", "memory.parquet")
    command = [sys.executable, "-c", ONE_RUN, *(str(folder / name) for name in names)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """Seconds of both ways, and a budget for the growth of the peak memory."""
    root = tempfile.TemporaryDirectory(prefix="prepare-aitw-")
    atexit.register(root.cleanup)
    folders = []
    for count in (200, 400) if smoke else (FEW_STEPS, STEPS):
        folders.append(Path(root.name) / str(count))
        folders[-1].mkdir()
        write_steps(folders[-1], count)
    few, many = folders
    growth = max(peak_mb(many) - peak_mb(few), 0.01)
    return [
        Comparison(name="rows", ours=lambda: ours(many), peer=lambda: peer(many), floor=3.0),
        Comparison(
            name="labels", ours=lambda: ours(many, labels=True), peer=lambda: peer(many, labels=True), floor=3.0
        ),
        Comparison(name="memory", ours=lambda: growth, peer=MOST_MB, floor=1.0, unit="MB"),
    ]
