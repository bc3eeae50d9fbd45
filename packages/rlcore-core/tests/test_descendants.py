from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rlcore.transport import process as module

PARENT = """
import ctypes, os, signal, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # the parent of processes whose parents end
if os.fork() == 0:
    def start_another(*_):
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(60)
    signal.signal(signal.SIGUSR1, start_another)
    print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the children of a process")
def test_process_that_starts_another_and_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child, kill = int(parent.stdout.readline()), os.kill

        def has_ended() -> bool:
            return "State:\tZ" in Path(f"/proc/{child}/status").read_text(encoding="utf-8")

        def late(process: int, number: int) -> None:
            if process == child and not has_ended():
                kill(child, signal.SIGUSR1)
                while not has_ended():
                    time.sleep(0.001)
            kill(process, number)

        monkeypatch.setattr(module.os, "kill", late)
        found = module._descendants(parent.pid)
        for process in {*found, parent.pid}:
            kill(process, signal.SIGKILL)
    assert len(found) == 2
    assert child in found
