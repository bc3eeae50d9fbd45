"""The program of the other interpreter, which is started by its path: rlcore need not be installed there.

Its standard input is the connection, and its arguments are the descriptors of the shared memory, and of a pipe that
closes with its parent.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import types

PACKAGE = "_rlcore_transport"
"""The name of this folder as a package, so that its modules hide none of the environment's."""
PARENT = "parent_pipe"
"""The attribute of the package with the descriptor of the pipe that closes with the parent."""


def end_with_parent(pipe: int) -> None:
    """Kill this process group when the other end of the pipe closes."""
    while os.read(pipe, 1):
        continue
    os.killpg(0, 9)


def main() -> None:
    """Serve the parent until it closes the connection."""
    memory, pipe = map(int, sys.argv[1:3])
    for descriptor in (memory, pipe):
        os.set_inheritable(descriptor, False)
    connection = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    if not sys.platform.startswith("linux"):  # where the parent has told the kernel to do it
        threading.Thread(target=end_with_parent, args=(pipe,), name="rlcore-parent", daemon=True).start()
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    sys.argv[:] = [""]
    package = types.ModuleType(PACKAGE)
    package.__path__ = [here]
    vars(package)[PARENT] = pipe  # for code that forks and lets another process end with the parent
    sys.modules[PACKAGE] = package
    importlib.import_module(PACKAGE + ".stops").leave_stops_to_main()
    importlib.import_module(PACKAGE + ".serving").serve(connection, memory)


if __name__ == "__main__":
    main()
