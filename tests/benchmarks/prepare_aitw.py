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
from rl_plugin_aitw.prepare import AitwPrepareConfig, prepare

VERSIONS = ("rl-plugin-aitw", "pyarrow", "orjson", "pandas", "pillow")
STEPS, FEW_STEPS = 50_000, 5_000
MOST_MB = 24.0
"""Growth of the peak memory from 5,000 to 50,000 steps: the places of labels, ids of episodes, and noise."""

ONE_RUN = """
import resource, sys
from pathlib import Path
import prepare_aitw
prepare_aitw.ours(Path(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def ours(folder: Path) -> float:
    """Prepare with the memory of the labels; the seconds of all steps."""
    started = time.perf_counter()
    summary = prepare(
        AitwPrepareConfig(
            source=[str(folder / "data.json")],
            images=str(folder / "images"),
            labels=str(folder / "labels.jsonl"),
            memory=True,
            out=str(folder / "ours.parquet"),
            overwrite=True,
        )
    )
    seconds = time.perf_counter() - started
    assert summary["rows"] == summary["steps"]
    return seconds


def peer(folder: Path, count: int) -> float:
    """The same with the straightforward way."""
    started = time.perf_counter()
    arguments = (folder / "data.json", folder / "images", folder / "labels.jsonl", folder / "peer.parquet")
    assert prepare_straightforward(*arguments) == count
    return time.perf_counter() - started


def peak_mb(folder: Path) -> float:
    """The peak memory of a process that prepares once."""
    command = [sys.executable, "-c", ONE_RUN, str(folder)]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
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
        Comparison(name="rows", ours=lambda: ours(many), peer=lambda: peer(many, int(many.name)), floor=10.0),
        Comparison(name="memory", ours=lambda: growth, peer=MOST_MB, floor=1.0, unit="MB"),
    ]
