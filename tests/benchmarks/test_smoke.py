"""Every benchmark runs at a tiny size."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FRAME = ("run", "comparison")
NAMES = sorted(
    path.stem.replace("_", "-")
    for path in HERE.glob("*.py")
    if path.stem not in FRAME and not path.stem.startswith(("_", "test_"))
)
BUSY = """
'''Wait for a process in another session that has a child.'''
import subprocess, sys
from comparison import Comparison
VERSIONS = ()
def work():
    child = "import os, subprocess, time; c = subprocess.Popen(['sleep', '600']); print(os.getpid(), c.pid, flush=True)"
    child += "; time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
    process.wait()
    return 1.0
def comparisons(*, smoke=False):
    return [Comparison(name="one", ours=work, peer=1.0, floor=1.0)]
"""


def command(name: str, folder: Path = HERE) -> list[str]:
    return [sys.executable, str(folder / "run.py"), "--smoke", name]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_benchmark_smoke_run(name: str) -> None:
    if name == "vllm-engine":
        pytest.importorskip("vllm")
    if name == "view" and shutil.which("chromium") is None:
        pytest.skip("Chromium is not installed")
    done = subprocess.run(command(name), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"{name}: smoke run, ")
    print(done.stdout)


def alive(process: int) -> bool:
    """Whether a process runs. A zombie does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def descendants(ancestor: int) -> set[int]:
    children = Path(f"/proc/{ancestor}/task/{ancestor}/children")
    try:
        direct = {int(child) for child in children.read_text(encoding="utf-8").split()}
    except OSError:
        return set()
    return direct.union(*map(descendants, direct))


def end(process: subprocess.Popen[str], number: signal.Signals, started: set[int]) -> None:
    """Send the signal, and check that the process and its descendants end."""
    process.send_signal(number)
    assert process.wait(timeout=30) == 128 + number
    left = {each for each in started if alive(each)}
    for each in left:
        os.kill(each, signal.SIGKILL)
    assert not left


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_benchmark_ends_its_processes(tmp_path: Path, number: signal.Signals) -> None:
    for name in ("run.py", "comparison.py", "_processes.py"):
        (tmp_path / name).write_text((HERE / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "busy.py").write_text(BUSY, encoding="utf-8")
    process = subprocess.Popen(command("busy", tmp_path), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = next(line for line in process.stdout if line[:1].isdigit())
    started = set(map(int, printed.split()))
    assert len(started) == 2
    assert all(map(alive, started))
    end(process, number, started)
    process.stdout.close()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_cost_growth_ends_its_processes(number: signal.Signals) -> None:
    process = subprocess.Popen(command("cost-growth"), stdout=subprocess.DEVNULL, text=True)
    while not (started := descendants(process.pid)):
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(1.0)  # time for some imports
    end(process, number, started | descendants(process.pid))
