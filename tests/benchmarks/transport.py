"""Steps of a control environment in another process, against the same environment in this one and a bare exchange.

The bare exchange is a process that steps the same environment and sends nothing but the bytes of its arrays through a
socket. What it takes is the hardware's limit: two processes that wait for each other.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from comparison import Comparison
from rlcore.transport import control_environment

SHARED = str(Path(__file__).parents[1] / "shared")
sys.path.insert(0, SHARED)
import simulators  # noqa: E402

VERSIONS = ("rlcore-core", "gymnasium", "numpy")
WORK_S = {0: 1 / 1700, 3: 1 / 534}
"""CPU time of a step by the number of cameras: that of a SAPIEN scene with two arms on a CPU."""
ACTION = np.zeros(3, np.float32)
BARE = f"""
import socket, sys
sys.path.insert(0, {SHARED!r})
import numpy, simulators
descriptor, pictures, work_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
connection = socket.socket(fileno=descriptor)
arm = simulators.Arm(pictures, work_s)
arm.reset(seed=0)
while action := connection.recv(4096):
    observation = arm.step(numpy.frombuffer(action, numpy.float32))[0]
    connection.sendall(b"".join(array.tobytes() for array in observation.values()))
"""


def measured(step: Callable[[], object], steps: int) -> Callable[[], float]:
    """Milliseconds of a step."""

    def once() -> float:
        start = time.perf_counter()
        for _ in range(steps):
            step()
        return 1000 * (time.perf_counter() - start) / steps

    return once


def stepped(environment: Any) -> Callable[[], object]:
    """The step of an environment."""
    environment.reset(seed=0)
    return lambda: environment.step(ACTION)


def bare(pictures: int, work_s: float) -> Callable[[], object]:
    """The step in a process of its own, whose arrays are received as bytes."""
    ours, theirs = socket.socketpair()
    with theirs:
        words = [str(theirs.fileno()), str(pictures), str(work_s)]
        process = subprocess.Popen([sys.executable, "-c", BARE, *words], pass_fds=(theirs.fileno(),))
    size = ACTION.nbytes + pictures * 64 * 64 * 3

    def step() -> bytes:
        ours.send(ACTION)
        answer = ours.recv(size, socket.MSG_WAITALL)
        assert len(answer) == size, process.poll()
        return answer

    return step


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """State alone and three 64x64 cameras, with the work of a simulator."""
    steps, found = 5 if smoke else 1000, []
    for pictures, name, floors in ((0, "state", (0.6, 0.7)), (3, "three-cameras", (0.75, 0.8))):
        arguments = {"pictures": pictures, "work_s": WORK_S[pictures]}
        there = control_environment(sys.executable, f"{simulators.__file__}:Arm", arguments)
        ours = measured(stepped(there), steps)
        peers = (name, stepped(simulators.Arm(**arguments))), (f"{name}-exchange", bare(pictures, WORK_S[pictures]))
        for (row, peer), floor in zip(peers, floors, strict=True):
            found.append(Comparison(name=row, ours=ours, peer=measured(peer, steps), floor=floor, unit="ms"))
    return found
