"""Write the page of the documentation that lists the attacks on the sandbox: ``python tests/repo/sandbox_page.py``."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sandbox-attacks.md"
HEAD = """# Attacks on the sandbox

Code of a model is hostile. Each row of this table is a test that runs in each local backend, as root and as an ordinary
user: `packages/rlcore-sandbox/tests/test_sandbox_attacks.py`. `uv run python tests/repo/sandbox_page.py` writes this
page, and a test checks that it is current.

The column `http` is measured with a service of the tests, which runs each program in a container of bubblewrap: with
namespaces of its own, without network and with a read-only system. The container does not filter system calls, and it
limits neither processes nor memory. Another service may isolate more or less.

Each test checks the same things: no secret is read, no file, process or socket of the host is reached, a session of
another trajectory keeps its names and files, the next cell prints only its own output, and the model reads why its code
failed.

- *refused*: the operation raises an `OSError` such as `PermissionError`, which the code can catch. The session
  continues. Another type of exception is named in the table.
- *no effect*: the code runs to its end and has changed nothing outside of its session.
- *stopped, reset*: the code reached a limit or ended its process. The session restarts with its initial images, and the
  result says so.
- *stopped*: the code reached a limit or ended its process. In `http`, every cell starts anew, so that there is no state
  to lose.
- *possible*: rlcore does not prevent it. Only the isolation of the service decides what follows.
- *no effect, reset*: the code runs to its end, but has left threads. The session restarts, and the result says so.
"""
TAIL = """
## What is not guaranteed

- All backends share the kernel with the host. A bug in a system call that sessions may use can break the isolation. Use
  a virtual machine, or a sandbox service on another machine (`sandbox.id = "http"`), where this matters.
- Code can disturb its own session: replace functions, or send a forged reply for its own cell. It thereby changes only
  its own observation.
- CPU time is limited for each process of a session, and wall time for each cell. Code that ignores the signal for its
  CPU time runs until the limit of wall time. Sessions share the cores.
- Memory of the kernel for pipes and pairs of sockets is limited only by the number of open files, to about 50 MB for
  each process with the default limits.
- Sessions can signal to each other through what they share, such as the load of the cores and locks on files of the
  interpreter.
- `namespaces` checks the memory of all processes of a session together several times a second, so that a session can
  exceed it for a moment. The memory of each process is limited by the kernel.
- `bubblewrap` and `landlock` check the size of all files of a session together several times a second. In these
  backends, code can create neither processes nor threads, it cannot change the modes, owners or times of files, and it
  cannot send messages with `sendmsg`, whose descriptors would keep deleted files.
- `landlock` has no namespaces. Code can see with `os.stat` whether a path of the host exists, its size and its times,
  where a symbolic link points, and what the host is called. In `bubblewrap` the same holds for the folders of other
  sessions. Contents of files cannot be read.
- `http` limits what all processes of a session use together only as long as the code does not kill the process that
  checks it, and does not write outside of its folder. Neither shared memory nor deleted files in the queue of a socket
  are limited. Code that makes the service fail is not scored.
- As root, `landlock` runs code as an unprivileged user, or as root without capabilities if other users cannot read the
  interpreter.
"""


def page() -> str:
    """The page, from the attacks and what the tests expect of them."""
    sys.path.insert(0, str(ROOT / "tests" / "shared"))
    from sandbox_attacks import ATTACKS, BACKENDS

    rows = "\n".join(f"| {attack.title} | {' | '.join(map(attack.outcome, BACKENDS))} |" for attack in ATTACKS)
    titles = " | ".join(f"`{backend}`" for backend in BACKENDS)
    return f"{HEAD}\n| Attack | {titles} |\n|{'---|' * (1 + len(BACKENDS))}\n{rows}\n{TAIL}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
