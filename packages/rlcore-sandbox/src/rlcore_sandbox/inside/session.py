"""The loop of a session: reads requests from the host, runs cells, and replies. It ends with the connection."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
from types import SimpleNamespace
from typing import Any, NoReturn

from rlcore_sandbox.inside.cells import Cells
from rlcore_sandbox.inside.frames import BrokenFrame, Decoder, encode, read_message

CHUNK = 262_144
LONGEST = 2**31 - 1
"""The host is trusted with its lengths."""
CPU_STATUS = 128 + signal.SIGXCPU
"""Exit status of a session whose cell has used its CPU time."""
BROKEN_STATUS = 70
"""Exit status of a session that cannot reply."""
FULL_STATUS = 71
"""Exit status of a session whose code has used so much memory that it cannot read requests."""
THREADS_S = 0.1
"""Time for threads to end after a cell."""
THREADS_NOTE = b"Threads that the code left running were stopped, and the session was restarted without its names.\n"
_read, _write, _exit, _process, _kill, _wait = os.read, os.write, os._exit, os.getpid, os.kill, os.waitpid
_frames, _now, _sleep = sys._current_frames, time.monotonic, time.sleep


def serve(connection: int, limits: SimpleNamespace) -> NoReturn:
    """Serve the host until it closes the connection.

    Args:
        connection: file descriptor of a stream socket
        limits: with the fields of `rlcore.types.SandboxLimits`
    """
    own = _process()
    status = BROKEN_STATUS
    try:
        status = _serve(connection, limits, own)
    except BaseException:
        if _process() == own:
            raise
    finally:
        _exit(status)


def _serve(connection: int, limits: SimpleNamespace, own: int) -> int:
    decoder = Decoder(longest_text=LONGEST, longest_image=LONGEST, most_images=LONGEST)
    opening = read_message(decoder, lambda: _read(connection, CHUNK))
    if opening is None:
        return 0
    seed()
    try:
        cells = Cells(opening[1], limits)
    except ValueError as error:
        _send(connection, encode({"unreadable": str(error)}))
        return 0
    signal.signal(signal.SIGXCPU, lambda *_: _exit(CPU_STATUS))
    _send(connection, encode({"ready": True}))
    while True:
        try:
            request = read_message(decoder, lambda: _read(connection, CHUNK))
        except (OSError, BrokenFrame):
            return 0
        except MemoryError:
            return FULL_STATUS
        except BaseException:  # of a signal handler that code has left behind
            continue
        if request is None:
            return 0
        message: dict[str, Any] = request[0]
        limit_cpu(limits.cpu_s)
        reply, images = cells.run(message["code"], message["first"])
        if _process() != own:  # code has forked, and this is the other process
            return 0
        if own == 1:
            _end_others()
        left = threads_left()
        if left:
            _write(2, THREADS_NOTE)
        _send(connection, encode({"id": message["id"], **reply, "left": left}, images))


def _end_others() -> None:
    """End all other processes of this PID namespace, which code has left behind."""
    try:
        _kill(-1, signal.SIGKILL)
        while True:
            _wait(-1, 0)
    except (ProcessLookupError, ChildProcessError):
        return


def threads_left() -> bool:
    """Whether threads that code has started are still running, after a short time to end."""
    end = _now() + THREADS_S
    while len(_frames()) > 1:
        if _now() > end:
            return True
        _sleep(0.001)
    return False


def _send(connection: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[_write(connection, view) :]


def seed() -> None:
    """Equal code draws equal numbers in all sessions."""
    random.seed(0)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(0)


def limit_cpu(seconds: float) -> None:
    """End the process, or one of its children, after this CPU time from now on."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = int(time.process_time() + seconds) + 1
    if hard == resource.RLIM_INFINITY or soft < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
