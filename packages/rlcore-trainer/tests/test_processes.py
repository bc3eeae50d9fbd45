"""Joined processes, real ones over gloo, and how they part."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from two_processes import two_processes

PARTS = """
import time
from contextlib import suppress
from pathlib import Path
from rlcore_trainer.distributed.processes import JoinedProcesses
processes = JoinedProcesses(cpu=True)
import transformers.modeling_utils
assert processes.exchange(processes.rank.index) == [0, 1]

def gloos():
    found = set()
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # it ended meanwhile
            found.add(path.read_text().strip())
    return sorted(name for name in found if "gloo" in name)

before = gloos()
processes.end(None)
until = time.monotonic() + 5  # the kernel may list a thread for a moment after it was joined
while gloos() and time.monotonic() < until:
    time.sleep(0.01)
print(*before, "then", *gloos())
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="threads are read from /proc")
def test_gloo_threads_end_with_the_process_group() -> None:
    """One that does may want the interpreter while it shuts down, and then aborts the process."""
    with two_processes(PARTS) as started:
        for process in started:
            said, errors = process.communicate(timeout=120)
            assert said == "gloo_tcp_loop pt_gloo_runloop then\n", said + errors


WAITS = """
import os, signal, sys
from rlcore.errors import ProcessError
from rlcore_trainer.distributed import heartbeat
heartbeat.HEARTBEAT_S, heartbeat.MISSED = 0.2, 20
from rlcore_trainer.distributed.processes import JoinedProcesses
processes = JoinedProcesses(cpu=True)
processes.exchange(None)
if processes.rank.index == {stopped}:
    {hangs}
try:
    processes.exchange(None)
except ProcessError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [0, 1])
def test_stopped_process_is_noticed_and_named(stopped: int) -> None:
    with two_processes(WAITS.format(stopped=stopped, hangs="os.kill(os.getpid(), signal.SIGSTOP)")) as started:
        said, errors = started[1 - stopped].communicate(timeout=120)
        assert said.startswith(f"rank {stopped} of 2 has not responded for 4 s: it hangs, or it was stopped"), errors
        assert f"note      rank {stopped} of 2 has not responded for 1 s, and will be ended after 4 s" in errors
        assert started[stopped].communicate(timeout=10) == ("", "")
        assert started[stopped].returncode == -signal.SIGKILL


LATE = """
import time
from datetime import timedelta
from rlcore_trainer.distributed import processes
processes.CONNECTING = timedelta(seconds=10)
joined = processes.JoinedProcesses(cpu=True)
time.sleep(12 * joined.rank.index)
print(joined.exchange(joined.rank.index))
"""


@pytest.mark.slow
def test_work_may_take_longer_than_connecting() -> None:
    with two_processes(LATE) as started:
        for process in started:
            said, errors = process.communicate(timeout=120)
            assert said == "[0, 1]\n", errors


HANGS = """
    import ctypes, pathlib
    from rlcore.runs.stacks import stacks_written
    with stacks_written(pathlib.Path({folder!r}), 1):
        while True:
            ctypes.PyDLL(None).sleep(60)  # native code that keeps all threads of Python from working, until a signal
"""


@pytest.mark.slow
def test_process_that_hangs_leaves_its_stacks(tmp_path: Path) -> None:
    with two_processes(WAITS.format(stopped=1, hangs=HANGS.strip().format(folder=str(tmp_path)))) as started:
        said, errors = started[0].communicate(timeout=120)
        assert "it has written its stacks to stacks-1.txt" in said, errors
        started[1].communicate(timeout=10)
    stacks = (tmp_path / "stacks-1.txt").read_text(encoding="utf-8")
    assert "Current thread" in stacks
    assert "rlcore_trainer/distributed/heartbeat.py" in stacks
