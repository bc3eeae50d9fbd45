"""Processes that end with their parent from their first instruction on, without vLLM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running_processes import processes_with

PARENT = """
import multiprocessing, os, sys, time
from rlcore_rollout.engines.vllm.parent_death import children_follow

def child():
    time.sleep(1000)

def with_child():
    multiprocessing.get_context("spawn").Process(target=child).start()
    time.sleep(1000)

if __name__ == "__main__":
    with children_follow():
        process = multiprocessing.get_context("spawn").Process(target=with_child if "deep" in sys.argv else child)
        print("starting", flush=True)
        process.start()
    print("started", flush=True)
    time.sleep(1000)
"""


def marked(mark: str) -> list[int]:
    """The processes with this mark in their environment, besides `multiprocessing`'s own."""
    found = processes_with(f"FOLLOW_MARK={mark}")
    return [process for process, line in found.items() if "resource_tracker" not in line]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends them on Linux")
@pytest.mark.parametrize("delay_s", [None, 0.0, 0.005, 0.02, 0.05, 0.1, 0.4])
def test_child_ends_with_a_parent_killed_at_any_time(delay_s: float | None, tmp_path: Path) -> None:
    script, mark = tmp_path / "parent.py", f"{os.getpid()}-{time.monotonic_ns()}"
    script.write_text(PARENT, encoding="utf-8")
    command = [sys.executable, str(script), *(["deep"] if delay_s is None else [])]
    process = subprocess.Popen(command, env={**os.environ, "FOLLOW_MARK": mark}, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "starting\n"
    if delay_s is None:  # the child of the child too
        until = time.monotonic() + 30
        while len(marked(mark)) < 3:
            assert time.monotonic() < until
            time.sleep(0.01)
    else:
        time.sleep(delay_s)
    process.kill()
    process.wait()
    process.stdout.close()
    until = time.monotonic() + 2
    while (left := marked(mark)) and time.monotonic() < until:
        time.sleep(0.01)
    for one in left:
        os.kill(one, signal.SIGKILL)
    assert left == []


OBEYS = """
import multiprocessing, os, signal, sys, time
from rlcore_rollout.engines.vllm.parent_death import children_follow

def child(pipe, handles):
    if handles:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    pipe.send("ready")
    pipe.poll(1000)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    with children_follow():
        process = context.Process(target=child, args=(there, "handles" in sys.argv))
        process.start()
    assert here.recv() == "ready"
    print(process.pid, flush=True)
    sys.stdin.readline()
    assert process.is_alive()
    process.terminate()
    process.join(20)
    print(process.exitcode, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "sigwaitinfo"), reason="needs sigwaitinfo")
@pytest.mark.parametrize(("how", "status"), [("handles", 7), ("default", -signal.SIGKILL)])
def test_child_stops_only_for_its_parent(how: str, status: int, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(OBEYS, encoding="utf-8")
    command, pipe = [sys.executable, str(script), how], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            os.kill(child, number)  # as Slurm does
            time.sleep(0.1)
        out, _ = process.communicate("\n", timeout=60)
    assert int(out) == status
