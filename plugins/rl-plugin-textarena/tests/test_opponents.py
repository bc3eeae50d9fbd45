"""The process of a frozen opponent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from rl_plugin_textarena.opponents import ENDS_WITH_US

OWNER = """
import subprocess, sys, time
opponent = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
command = ["sh", "-c", sys.argv[1], "sh", sys.executable, "-c", opponent]
subprocess.Popen(command, stdin=subprocess.PIPE)
time.sleep(60)
"""


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_opponent_ends_when_its_owner_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER, ENDS_WITH_US], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        opponent = int(owner.stdout.readline())
        assert runs(opponent)
        owner.send_signal(signal.SIGKILL)
        until = time.monotonic() + 10
        while runs(opponent) and time.monotonic() < until:
            time.sleep(0.01)
        assert not runs(opponent)
