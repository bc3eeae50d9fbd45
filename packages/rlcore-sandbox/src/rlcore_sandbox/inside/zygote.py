"""The zygote: imports numpy, pillow and matplotlib once, and forks a process for each session.

It is started by `rlcore_sandbox.local` as a fresh interpreter, with a clean environment and one inherited
descriptor: the control socket. It never runs code of a model and has one thread. It ends with the process that started
it, and the sessions end with it.

The host sends messages, with descriptors attached::

    {"open": id}    start a session; descriptors: its connection, stdout, stderr, and the pipe that reports its end
    {"kill": id}    kill a session with all its processes

The report of a session's end is its wait status as a number. It is written when the processes are gone. A pipe that is
closed without a report means that the zygote has ended.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn

from rlcore_sandbox import isolation
from rlcore_sandbox.inside import processes, session
from rlcore_sandbox.inside.figures import preload
from rlcore_sandbox.inside.frames import encode
from rlcore_sandbox.inside.refused import explain_refusals
from rlcore_sandbox.isolation.limits import INTERVAL_S

PRELOADED = (
    "base64",
    "collections",
    "functools",
    "io",
    "itertools",
    "json",
    "math",
    "multiprocessing.heap",
    "random",
    "re",
    "statistics",
    "string",
    "textwrap",
    "time",
    "numpy",
    "numpy.fft",
    "numpy.linalg",
    "numpy.ma",
    "numpy.random",
    "PIL.Image",
    "PIL.ImageChops",
    "PIL.ImageDraw",
    "PIL.ImageEnhance",
    "PIL.ImageFilter",
    "PIL.ImageFont",
    "PIL.ImageOps",
    "PIL.ImageStat",
    "PIL.PngImagePlugin",
    "PIL.JpegImagePlugin",
    "PIL.WebPImagePlugin",
    "matplotlib",
    "matplotlib.pyplot",
    "matplotlib.patches",
    "matplotlib.backends.backend_agg",
)
LONGEST_MESSAGE = 65_536
MOST_PASSES = 64
CONNECTION = 3
"""File descriptor of the connection in a session."""
NICENESS = 10
"""Cells that compute without end must not delay this process, which starts and ends all sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A running session, as the zygote sees it."""

    name: str
    process: int
    handle: int
    """A pidfd, which is readable when the process has ended."""
    report: int
    """The pipe for its wait status."""
    scratch: str


class Zygote:
    """Forks sessions as the host asks.

    Args:
        control: connection to the host
        folder: for the scratch folders of the sessions
        limits: with the fields of `rlcore.types.SandboxLimits`
        prepared: by `isolation.prepare`
    """

    def __init__(self, control: socket.socket, folder: str, limits: SimpleNamespace, prepared: Any) -> None:
        self._control, self._folder, self._limits, self._prepared = control, folder, limits, prepared
        self._parent = os.pidfd_open(os.getppid())
        self._sessions: dict[int, Session] = {}
        """By pidfd."""
        self._exceeded: dict[int, int] = {}
        """Processes that were killed for a limit, and the exit status that says which."""
        self._checked: dict[int, str] = {}
        """The progress of processes at their last check."""
        self._deleting: set[int] = set()
        """Processes that delete scratch folders."""

    def serve(self) -> None:
        """Serve the host until it closes the connection or ends."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._parent, select.POLLIN)
        check_at = 0.0
        while True:
            if self._sessions and time.monotonic() >= check_at:
                self._check()
                check_at = time.monotonic() + INTERVAL_S
            for descriptor, _ in poll.poll(INTERVAL_S * 1000 if self._sessions else None):
                if descriptor == self._parent:
                    return
                if descriptor in self._sessions:
                    poll.unregister(descriptor)
                    self._ended(self._sessions.pop(descriptor))
                elif descriptor == self._control.fileno():
                    data, descriptors, _, _ = socket.recv_fds(
                        self._control, LONGEST_MESSAGE, 4, socket.MSG_CMSG_CLOEXEC
                    )
                    if not data:
                        return
                    message = json.loads(data)
                    if "open" in message:
                        if (started := self._open(message["open"], descriptors)) is not None:
                            self._sessions[started.handle] = started
                            poll.register(started.handle, select.POLLIN)
                    else:
                        self._kill(message["kill"])

    def close(self) -> None:
        """Kill all sessions. Their ends are not reported: nothing that they did is the reason."""
        for each in self._sessions.values():
            processes.kill_tree(each.process)
            os.close(each.report)
        for each in self._sessions.values():
            os.waitpid(each.process, 0)
            _delete(each.scratch)
        self._sessions.clear()

    def _check(self) -> None:
        """Kill the sessions that exceed limits which the kernel does not check."""
        for each in self._sessions.values():
            progress = self._prepared.progress(each.process)
            idle = progress and progress == self._checked.get(each.process)
            if idle or each.process in self._exceeded:
                continue
            self._checked[each.process] = progress
            if status := self._prepared.exceeded(each.process, each.scratch):
                self._exceeded[each.process] = status
                processes.kill_tree(each.process)

    def _open(self, name: str, descriptors: list[int]) -> Session | None:
        connection, stdout, stderr, report = descriptors
        scratch = os.path.join(self._folder, name)
        parent = os.getpid()
        try:
            os.mkdir(scratch, 0o700)
            process = self._prepared.fork()
        except OSError as error:  # the machine has no more processes or namespaces
            os.write(connection, encode({"failed": str(error)}))
            for descriptor in descriptors:
                os.close(descriptor)
            return None
        if not process:
            self._become_session(parent, scratch, connection, stdout, stderr, report)
        for descriptor in (connection, stdout, stderr):
            os.close(descriptor)
        handle = os.pidfd_open(process)
        return Session(name=name, process=process, handle=handle, report=report, scratch=scratch)

    def _become_session(
        self, parent: int, scratch: str, connection: int, stdout: int, stderr: int, report: int
    ) -> NoReturn:
        try:
            processes.die_with_parent(parent)
            if os.getpid() == 1:  # it survives these signals, which end the processes of its code
                signal.signal(signal.SIGHUP, signal.SIG_DFL)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setpgid(0, 0)  # not setsid: the kernel gives each such session an equal share of the processor
            os.nice(NICENESS)
            processes.prefer_for_memory()
            for each in self._sessions.values():
                os.close(each.handle)
                os.close(each.report)
            for descriptor in (report, self._parent, self._control.detach()):
                os.close(descriptor)
            os.dup2(stdout, 1)
            os.dup2(stderr, 2)
            os.environ.clear()
            os.environ.update(environment(scratch))
            tempfile.tempdir = None
            explain_refusals()
            self._prepared.enter(scratch)
            os.chdir(scratch)
        except BaseException as error:
            os.write(connection, encode({"failed": f"{type(error).__name__}: {error}"}))
            os._exit(70)
        if connection != CONNECTION:
            os.dup2(connection, CONNECTION, inheritable=False)
        os.closerange(CONNECTION + 1, 1 << 20)
        gc.enable()
        session.serve(CONNECTION, self._limits)

    def _kill(self, name: str) -> None:
        for each in self._sessions.values():
            if each.name == name:
                processes.kill_tree(each.process)

    def _ended(self, ended: Session) -> None:
        _, status = os.waitpid(ended.process, 0)
        self._checked.pop(ended.process, None)
        if (exceeded := self._exceeded.pop(ended.process, 0)) and os.waitstatus_to_exitcode(status) == -signal.SIGKILL:
            status = exceeded << 8
        known = {each.process for each in self._sessions.values()}
        self._deleting = {each for each in self._deleting if not processes.reaped(each)}
        processes.kill_orphans(known | self._deleting)
        if deleting := _delete(ended.scratch):
            self._deleting.add(deleting)
        with contextlib.suppress(BrokenPipeError):  # the host does not wait for it
            os.write(ended.report, b"%d" % status)
        for descriptor in (ended.report, ended.handle):
            os.close(descriptor)


def environment(scratch: str) -> dict[str, str]:
    """The environment variables of a session."""
    return {
        "HOME": scratch,
        "TMPDIR": scratch,
        "MPLCONFIGDIR": scratch,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def main(descriptor: int) -> int:
    """Serve the host over a control socket. Its first message has the backend, the limits and the folder."""
    for number in processes.STOPS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, processes.STOPS)
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    first = json.loads(control.recv(LONGEST_MESSAGE))
    gc.disable()
    limits = SimpleNamespace(**first["limits"])
    processes.adopt_orphans()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    preload(PRELOADED)
    _draw_once()
    prepared = isolation.prepare(first["backend"], limits, first["folder"])
    gc.collect()
    gc.freeze()
    zygote = Zygote(control, first["folder"], limits, prepared)
    control.send(b"ready")
    try:
        zygote.serve()
    finally:
        zygote.close()
    return 0


def _draw_once() -> None:
    """Load fonts and everything else that matplotlib loads when it draws."""
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is None:
        return
    figure, axes = pyplot.subplots()
    axes.imshow([[0, 1], [1, 0]])
    axes.plot([0, 1], label="line")
    axes.set_title("$x$")
    axes.legend()
    figure.canvas.draw()
    pyplot.close(figure)


def _delete(scratch: str) -> int | None:
    """Delete a scratch folder. One that is not empty may be large: the process that deletes it is returned."""
    with contextlib.suppress(OSError):
        os.rmdir(scratch)
        return None
    process = os.fork()
    if process:
        return process
    try:
        os.closerange(3, 1 << 20)
        sys.setrecursionlimit(100_000)
        for _ in range(MOST_PASSES):  # each pass opens the folders that stopped the one before
            shutil.rmtree(scratch, onerror=_make_writable)
            if not os.path.lexists(scratch):
                break
    finally:
        os._exit(0)


def _make_writable(function: object, path: str, error: object) -> None:
    folder = path if os.path.isdir(path) and not os.path.islink(path) else os.path.dirname(path)
    with contextlib.suppress(OSError):
        os.chmod(folder, 0o700)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
