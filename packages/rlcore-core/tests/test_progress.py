"""The progress of a phase: what is counted, and how it is shown on a terminal and elsewhere."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time

import pytest
from rlcore.runs.progress import Meter, PrintedProgress, Progress
from rlcore.session.session import RunSession


def state(*, done: int, elapsed_s: float, tokens: int = 0, ended: bool = False) -> Progress:
    return Progress(
        phase="rollout",
        done=done,
        total=128,
        unit="trajectory",
        tokens=tokens,
        elapsed_s=elapsed_s,
        ended=ended,
    )


def test_progress_states_count_rate_and_remaining_time() -> None:
    text = str(state(done=32, elapsed_s=60.0, tokens=6000))
    assert text == "rollout  32 of 128 trajectories, 100 tokens/s, 3 min left"
    assert str(state(done=64, elapsed_s=10.0)) == "rollout  64 of 128 trajectories, 10 s left"
    assert str(state(done=0, elapsed_s=0.5)) == "rollout  0 of 128 trajectories"
    assert str(state(done=0, elapsed_s=10.0)) == "rollout  0 of 128 trajectories, 10 s so far"
    assert str(state(done=1, elapsed_s=100.0)).endswith("3 h 32 min left")


def test_without_a_terminal_a_long_phase_prints_a_line_now_and_then() -> None:
    lines: list[str] = []
    show = PrintedProgress(lines.append)
    for second in range(100):
        show(state(done=second, elapsed_s=float(second)))
    show(state(done=128, elapsed_s=100.0, ended=True))
    assert [line.partition(" of ")[0] for line in lines] == [f"progress  rollout  {done}" for done in (30, 60, 90)]
    lines.clear()
    show(state(done=1, elapsed_s=29.0))
    assert lines == []


def test_meter_shows_the_last_state_and_costs_next_to_nothing() -> None:
    shown: list[Progress] = []
    started = time.process_time()
    with Meter("update", 100_000, "token", shown.append) as meter:
        for _ in range(100_000):
            meter.advance(tokens=2)
    assert (time.process_time() - started) / 100_000 < 20e-6
    assert (shown[-1].done, shown[-1].tokens, shown[-1].ended) == (100_000, 200_000, True)
    assert len(shown) < 100
    with pytest.raises(ZeroDivisionError), Meter("update", 2, "token", shown.append):
        raise ZeroDivisionError
    assert (shown[-1].done, shown[-1].ended) == (0, True)


def test_a_restart_leaves_out_the_time_before() -> None:
    shown: list[Progress] = []
    with Meter("warm-up", 2, "step", shown.append) as meter:
        time.sleep(0.3)
        meter.restart()
    assert shown[-1].elapsed_s < 0.3


def test_a_session_shows_its_phases_in_a_display_of_ones_own(toy: object) -> None:
    shown: list[Progress] = []
    values = {
        "model": {"path": "builtin:tiny"},
        "environment": {"id": "toy"},
        "reward": [{"id": "exact"}],
    }
    plan = RunSession.create(values).plan
    with RunSession(plan, progress=shown.append).progress("rollout", 2, "trajectory") as meter:
        meter.advance(2)
    assert (shown[-1].phase, shown[-1].done, shown[-1].total) == ("rollout", 2, 2)
    with RunSession(plan, is_main=False, progress=shown.append).progress("rollout", 9, "trajectory") as meter:
        meter.advance(9)
    assert shown[-1].total == 2


SCRIPT = """
from rlcore.runs.progress import PrintedProgress, Progress
from rlcore.console.terminal import say
show = PrintedProgress(say)
for done in (1, 2):
    show(Progress(phase="x" * 200, done=done, total=4, unit="step", tokens=0, elapsed_s=1.0))
say("a line")
show(Progress(phase="rollout", done=3, total=4, unit="step", tokens=0, elapsed_s=1.0))
show(Progress(phase="rollout", done=3, total=4, unit="step", tokens=0, elapsed_s=1.0, ended=True))
"""


def test_terminal_shows_a_bar_that_other_lines_replace() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    subprocess.run(
        [sys.executable, "-c", SCRIPT], stdout=theirs, stderr=theirs, env=environment, check=True, timeout=60
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the end, on Linux
            break
        if not part:
            break
        shown += part
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    assert "━" in text
    rows = re.split(r"\r\x1b\[K|\r?\n", text)
    assert max(map(len, rows)) <= 80
    assert "a line" in rows
    assert rows[-1] == ""
    assert any("3 of 4 steps" in row for row in rows)
