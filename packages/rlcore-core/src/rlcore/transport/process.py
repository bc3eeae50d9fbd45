"""A child process: its start, its bytes, what it prints, and its end.

Everything that it sends is untrusted: whatever breaks the protocol ends it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlcore.errors import UserError
from rlcore.transport.inside import shared_arrays
from rlcore.transport.inside.shared_arrays import SharedArrays
from rlcore.transport.remote import Channel, Ended

INSIDE = Path(__file__).parent / "inside"
TAIL_BYTES = 4000
"""What is kept of the printed output."""
TAIL_LINES = 20
CHUNK = 65_536
LOOK_S = 0.2
"""Seconds between looks whether the process still runs: one of its own processes may hold the connection open."""
END_S = 2.0
"""Time for a process to end by itself after the connection has closed."""
KILLED_S = 10.0
"""Time for a killed process to be gone."""


class ChildProcess(Channel):
    """A running process, with all that belongs to it. It is killed when this object is collected, or this process ends.

    Its standard input is the connection, in both directions, and what it prints is kept.

    Args:
        command: the program and its arguments
        variables: its environment variables
        shares_memory: whether it gets `memory`. The descriptors of that, and of a pipe that closes with this process,
            are its last arguments

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], *, shares_memory: bool = False) -> None:
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            here, connection = socket.socketpair()
            ours.callback(here.close)
            theirs.callback(connection.close)
            life, alive = os.pipe()
            theirs.callback(os.close, life)
            ours.callback(os.close, alive)
            output, printing = os.pipe()
            theirs.callback(os.close, printing)
            # A file, unlike a descriptor, cannot be that of somebody else after another thread has closed it.
            self._output = ours.enter_context(open(output, "rb", buffering=0))
            given = [life]
            if shares_memory:
                self.memory = SharedArrays(shared_arrays.create())
                ours.callback(os.close, self.memory.descriptor)
                given = [self.memory.descriptor, life]
                command = [*command, *map(str, given)]
            self._process = subprocess.Popen(
                command,
                stdin=connection.fileno(),
                stdout=printing,
                stderr=printing,
                env=variables,
                pass_fds=given,
                start_new_session=True,
            )
            _kill_when_closed(life, self._process.pid)
            self._descriptors = ours.pop_all()
        self._owner = os.getpid()
        self._printed = b""
        super().__init__(here)
        os.set_blocking(output, False)
        self._reading, self._writing = select.poll(), select.poll()
        self._reading.register(self._connection, select.POLLIN)
        self._writing.register(self._connection, select.POLLOUT)
        self._printing = output
        for poll in (self._reading, self._writing):
            poll.register(output, select.POLLIN)
        self._finalizer = weakref.finalize(self, _end, self._process, self._descriptors, self._owner)

    @property
    def usable(self) -> bool:
        """Whether it runs, as far as known, and belongs to this process and not to the parent of this fork."""
        return not self.ended and os.getpid() == self._owner

    @property
    def ended(self) -> bool:
        """Whether the process was ended by `kill` or `close`."""
        return not self._finalizer.alive

    def _wait(self, event: int, deadline: float) -> None:
        """Wait until the connection is ready. What the process prints is read meanwhile, so that it never blocks."""
        poll = self._reading if event == select.POLLIN else self._writing
        while True:
            left = deadline - time.monotonic()
            events = poll.poll(1000 * max(0.0, min(left, LOOK_S)))
            ready = False
            for descriptor, _ in events:
                if descriptor == self._printing:
                    self._read_output()
                else:
                    ready = True
            if ready:
                return
            if left <= 0:
                raise Ended("", late=True)
            if not events and self._has_ended():
                if poll is self._reading and self.unread():
                    return
                raise Ended(self._why_closed())

    def _read_output(self) -> bool:
        """Read once what was printed, and return whether there may be more."""
        try:
            data = self._output.read(CHUNK)
        except ValueError:  # another thread has closed it
            return False
        if data == b"":
            for poll in (self._reading, self._writing):
                with contextlib.suppress(KeyError):
                    poll.unregister(self._printing)
        if not data:
            return False
        self._printed = (self._printed + data)[-TAIL_BYTES:]
        return True

    def printed(self) -> str:
        """The last lines that it printed."""
        if not self.ended:
            for _ in range(64):  # an endless output must not keep this process here
                if not self._read_output():
                    break
        lines = self._printed.decode("utf-8", "replace").strip().splitlines()
        shown = [line for line in lines if str(INSIDE) not in line]  # own frames explain nothing
        return "\n".join(shown[-TAIL_LINES:])

    def forget_printed(self) -> None:
        """Leave out of `printed` what was printed until now."""
        self.printed()
        self._printed = b""

    def _has_ended(self) -> bool:
        """Whether the process has ended. It is not waited for, so that its group still exists."""
        try:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, options) is not None
        except ChildProcessError:
            return True

    def _why_closed(self, error: OSError | None = None) -> str:
        """Why the connection is closed."""
        until = time.monotonic() + END_S
        while not self._has_ended() and time.monotonic() < until:
            self._read_output()
            time.sleep(0.01)
        if not self._has_ended():
            return "closed its connection"
        self.printed()
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILLED_S)  # another thread may have killed it
        status = self._process.returncode
        if status is None or status >= 0:
            return f"ended with exit status {status}"
        names = {number.value: number.name for number in signal.Signals}
        return f"was ended by {names.get(-status, f'signal {-status}')}"

    def close(self) -> None:
        """Close the connection, and give the process a moment to end by itself. A second call does nothing."""
        if self._finalizer.alive and os.getpid() == self._owner:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
            until = time.monotonic() + END_S
            while not self._has_ended() and time.monotonic() < until:
                self._read_output()
                time.sleep(0.002)
        self.kill()

    def kill(self) -> None:
        """Kill the process with its group, and free everything. A second call does nothing."""
        self._finalizer()


def _kill_when_closed(pipe: int, group: int) -> None:
    """Let Linux kill a process group when the other end of a pipe closes, also one that never returns to Python.

    The group has inherited the pipe. Elsewhere, a process ends when its connection closes.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a kernel in user space may lack it
            fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(pipe, fcntl.F_SETOWN, -group)
            fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)


def _end(process: subprocess.Popen[bytes], descriptors: contextlib.ExitStack, owner: int) -> None:
    """Kill the process group, wait for the process, and close the descriptors. In a fork, only close them."""
    if os.getpid() == owner:
        for left in _descendants(process.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(left, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=KILLED_S)
    else:
        process.returncode = 0  # the fork's copy must not warn that it still runs
    descriptors.close()


def _descendants(process: int) -> set[int]:
    """The descendants of a process, on Linux. They are stopped, so that they start no more."""
    found, until = set[int](), time.monotonic() + END_S
    while (stopped := _stopped(process)) - found and time.monotonic() < until:
        found = stopped  # one of them may have started another and ended before it was stopped
    return stopped


def _stopped(process: int) -> set[int]:
    """Stop a process and the descendants that are found on one way through them, and return the descendants."""
    found: set[int] = set()
    parents = [process]
    while parents:
        parent = parents.pop()
        with contextlib.suppress(OSError, ValueError):
            os.kill(parent, signal.SIGSTOP)
            for file in Path(f"/proc/{parent}/task").glob("*/children"):
                children = {int(text) for text in file.read_text().split()} - found
                found |= children
                parents += children
    return found


def found_interpreter(python: str) -> str:
    """The path of an interpreter.

    Raises:
        UserError: there is no such program.
    """
    path = os.path.expanduser(python)
    if os.path.isdir(path):
        inside = os.path.join(path, "bin", "python")
        fix = f"environment.python={inside}" if os.path.exists(inside) else "name its program, such as bin/python"
        raise UserError("environment.python needs the program of an interpreter", found=f"the folder {path}", fix=fix)
    found = shutil.which(path)
    if found is None:
        raise UserError(
            "there is no interpreter that can be started",
            found=python,
            where="environment.python",
            fix="create it, such as with uv venv --python 3.10 FOLDER, and name FOLDER/bin/python",
        )
    return os.path.abspath(found)
