"""The estimate of a run's memory: phases, and what does not fit."""

from __future__ import annotations

import mmap
import subprocess
import sys
import time

from rlcore.runs import machine
from rlcore.session.memory import MemoryEstimate

GIB = 2**30


def estimate(available: int | None) -> MemoryEstimate:
    return MemoryEstimate(device="cpu", main=0, parts={"weights": 2 * GIB, "activations": 8 * GIB}, available=available)


def test_run_slightly_above_the_memory_is_noted_but_not_rejected() -> None:
    assert [line[:4] for line in estimate(9 * GIB).lines()] == ["memo", "note"]
    assert estimate(9 * GIB).fits
    assert len(estimate(10 * GIB).lines()) == 1
    assert not estimate(8 * GIB).fits
    assert estimate(None).fits


def test_each_phase_has_its_own_peak() -> None:
    with machine.PhaseMemory("cpu") as memory:
        before = memory.take()
        held = mmap.mmap(-1, 300 * 2**20)  # malloc may reuse memory that earlier tests have freed
        for _ in range(300):
            held.write(bytes(2**20))
        end = time.monotonic() + 10  # on a busy machine, the thread that reads may run late
        while memory._peak < machine.used_bytes() - 50 * 2**20 and time.monotonic() < end:
            time.sleep(machine.READ_EVERY_S)
        held.close()
        large, after = memory.take(), memory.take()
    assert large > before + 0.2 > after > 0 or sys.platform != "linux"


def test_noted_processes_count_towards_the_peak() -> None:
    before = machine.peak_bytes()
    work = "held = bytearray(200 * 2**20); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        machine.note_processes()
        child.communicate(b"\n")
    try:
        assert machine.peak_bytes() - before >= (200 * 2**20 if sys.platform == "linux" else 0)
    finally:
        machine._noted = 0
