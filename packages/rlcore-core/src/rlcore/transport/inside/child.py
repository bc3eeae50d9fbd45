"""The program of the other interpreter, which is started by its path: rlcore need not be installed there.

Its arguments are the descriptors of the connection, of the shared memory, and of a pipe that closes with its parent.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import types

PACKAGE = "_rlcore_transport"
"""The name of this folder as a package, so that its modules hide none of the environment's."""


def end_with_parent(pipe: int) -> None:
    """Kill this process group when the other end of the pipe closes.

    On Linux the kernel does it, also while an extension never returns to the interpreter. Elsewhere a thread does.
    """
    try:
        import fcntl
        import signal

        set_signal = 10  # F_SETSIG, which the module does not have everywhere
        if not sys.platform.startswith("linux"):
            raise OSError
        fcntl.fcntl(pipe, set_signal, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_NONBLOCK | os.O_ASYNC)
        try:
            closed = os.read(pipe, 1) == b""  # it may have closed before
        except BlockingIOError:
            closed = False
        if closed:
            os.killpg(0, signal.SIGKILL)
    except (ImportError, OSError):
        threading.Thread(target=_wait, args=(pipe,), name="rlcore-parent", daemon=True).start()


def _wait(pipe: int) -> None:
    os.set_blocking(pipe, True)
    while os.read(pipe, 1):
        continue
    os.killpg(0, 9)


def main() -> None:
    """Serve the parent until it closes the connection."""
    connection, memory, pipe = map(int, sys.argv[1:4])
    for descriptor in (connection, memory, pipe):
        os.set_inheritable(descriptor, False)
    end_with_parent(pipe)
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    sys.argv[:] = [""]
    package = types.ModuleType(PACKAGE)
    package.__path__ = [here]
    sys.modules[PACKAGE] = package
    importlib.import_module(PACKAGE + ".stops").leave_stops_to_main()
    importlib.import_module(PACKAGE + ".serving").serve(connection, memory)


if __name__ == "__main__":
    main()
