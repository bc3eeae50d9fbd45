"""Runs hostile code in a sandbox, beside files, sockets, processes and a session that it must not reach.

``python sandbox_attacked.py BACKEND`` runs all attacks in one sandbox and prints the outcomes as JSON. It needs no
pytest, so that it can run as another user. The backend ``http`` uses a service that runs each program in a container.
"""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from fusion_server import FusionServer
from rlcore.types import CodeResult, SandboxLimits
from sandbox_attacks import ATTACKS, MADE, NO_EFFECT, POSSIBLE, REFUSED, STOPPED, STOPPED_HTTP, TOKEN, Attack

LIMITS = SandboxLimits(cell_s=60.0, cpu_s=10.0, memory_mb=256, output_characters=2000, processes=8, files=64, file_mb=8)
SHORT_S = 3.0
"""Wall time of a cell for attacks that hang. The other limit leaves room for a busy machine."""
SHORT_CPU_S = 1.0
"""CPU time of each process for attacks that spin."""
AT_ONCE = 4


@dataclass(slots=True)
class Outcome:
    """What happened in one attack."""

    title: str
    observed: str
    flaws: list[str] = field(default_factory=list)
    text: str = ""
    """What the model reads."""


class Host:
    """Files, sockets and a process that attacks try to reach."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        folder.chmod(0o755)
        self._files = {name: folder / name for name in ("home", "data", "run")}
        for path in self._files.values():
            path.write_text(TOKEN, encoding="utf-8")
            path.chmod(0o644)
        self._created = folder / "created"
        self._process = stack.enter_context(subprocess.Popen(["sleep", "600"]))
        stack.callback(self._process.kill)
        self._listeners = []
        for address in (("127.0.0.1", 0), f"\0{TOKEN}-{os.getpid()}", str(folder / "socket")):
            family = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
            listener = stack.enter_context(socket.socket(family))
            listener.bind(address)
            listener.listen()
            listener.setblocking(False)
            self._listeners.append(listener)
        self._datagrams = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self._datagrams.bind(str(folder / "datagrams"))
        self._datagrams.setblocking(False)
        for name in ("socket", "datagrams"):
            (folder / name).chmod(0o777)
        os.environ["RLCORE_CANARY"] = TOKEN
        self.names = {
            **{name.upper(): str(path) for name, path in self._files.items()},
            "CREATED": str(self._created),
            "HOST": self._process.pid,
            "PORT": self._listeners[0].getsockname()[1],
            "ABSTRACT": f"\0{TOKEN}-{os.getpid()}",
            "SOCKET": str(folder / "socket"),
            "DATAGRAM": str(folder / "datagrams"),
        }

    def flaws(self) -> Iterator[str]:
        """What attacks have changed."""
        for name, path in self._files.items():
            if not path.exists() or path.read_text(encoding="utf-8") != TOKEN or path.stat().st_mode & 0o777 != 0o644:
                yield f"the file {name} was changed"
        if self._process.poll() is not None:
            yield "a process was killed"
        if self._created.exists() or Path("/dev/shm/rlcore-canary").exists():
            yield "a file was created"
        for listener in self._listeners:
            try:
                listener.accept()
                yield f"{listener.getsockname()} was reached"
            except BlockingIOError:
                continue
        try:
            yield f"a datagram arrived: {self._datagrams.recv(100)!r}"
        except BlockingIOError:
            return


@contextmanager
def host() -> Iterator[Host]:
    with tempfile.TemporaryDirectory(prefix="rlcore-attacked-") as folder, ExitStack() as stack:
        yield Host(Path(folder), stack)


def observed(result: CodeResult, *, stateless: bool) -> str:
    """The outcome of a cell, as in the table."""
    reset = result.reset and not stateless
    if result.status in ("timeout", "killed"):
        return STOPPED if reset else STOPPED_HTTP
    kind = POSSIBLE if MADE in result.stdout else NO_EFFECT
    if result.status == "error":
        lines = [line for line in result.error.splitlines() if line and not line.startswith((" ", "The session"))]
        kind = lines[-1].split(":")[0]
        if issubclass(getattr(builtins, kind, Exception), OSError):
            kind = REFUSED
    return f"{kind}, reset" if reset and kind == NO_EFFECT else kind


async def run_attack(sandbox: Any, attack: Attack, names: dict[str, Any]) -> Outcome:
    """Run an attack in a session of its own, and look at what the next cell observes."""
    session = await sandbox.open(())
    outcome = Outcome(attack.title, "")
    try:
        setup = "".join(f"{name} = {value!r}\n" for name, value in names.items())
        ready = await session.run(setup)
        assert ready.ok, ready
        stateless = ready.reset
        start = time.monotonic()
        result = await session.run(setup + attack.code if stateless else attack.code)
        took_s = time.monotonic() - start
        outcome.observed = observed(result, stateless=stateless)
        outcome.text = f"{result.stdout}{result.stderr}{result.error}"[-300:]
        after = await session.run("print('next')")
        if TOKEN in f"{result.stdout}{result.stderr}{result.value}{result.error}":
            outcome.flaws.append("a secret was read, or the attack succeeded")
        if result.images or after.images:
            outcome.flaws.append("there are images")
        if result.status != "ok" and not result.error:
            outcome.flaws.append("the model is not told what happened")
        if result.status != "ok" and TOKEN in result.error:
            outcome.flaws.append("the error shows a secret")
        if took_s > LIMITS.cell_s:
            outcome.flaws.append(f"it took {took_s:.0f} s")
        if after.status != "ok" or after.stdout not in ("next\n", "") or after.stderr or after.reset != stateless:
            outcome.flaws.append(f"the next cell is disturbed: {after}")
    finally:
        await session.close()
    return outcome


@contextmanager
def maker(backend: str) -> Iterator[Callable[[SandboxLimits], Any]]:
    """A function that creates sandboxes of a backend."""
    from rlcore_sandbox.config import HttpSandboxConfig
    from rlcore_sandbox.fusion import HttpSandbox
    from rlcore_sandbox.local import LocalSandbox

    if backend != "http":
        yield partial(LocalSandbox, backend)
        return
    with FusionServer(contained=True) as server:
        yield partial(HttpSandbox, HttpSandboxConfig(base_url=server.url, max_retries=0))


async def run_attacks(backend: str) -> list[Outcome]:
    """Run all attacks in one sandbox, beside a session of another trajectory."""
    turns = asyncio.Semaphore(AT_ONCE)

    with host() as attacked, maker(backend) as make:
        sandbox = make(LIMITS)
        short, lean = make(replace(LIMITS, cell_s=SHORT_S)), make(replace(LIMITS, cpu_s=SHORT_CPU_S))

        async def attempt(attack: Attack) -> Outcome:
            async with turns:
                chosen = short if attack.hangs else lean if attack.spins else sandbox
                outcome = await run_attack(chosen, attack, names)
            outcome.flaws += attacked.flaws()
            again = await neighbour.run(f"{keep if made.reset else ''}\nprint(open('file').read(), secret)")
            if again.stdout != f"{TOKEN} {TOKEN}\n":
                outcome.flaws.append(f"the other session is disturbed: {again}")
            return outcome

        neighbour = await sandbox.open(())
        try:
            keep = f"secret = {TOKEN!r}\nprint(secret, end='', file=open('file', 'w'), flush=True)"
            made = await neighbour.run(f"{keep}\nimport os\nos.getcwd()")
            names = attacked.names | {"NEIGHBOUR": made.value.strip("'")}
            return list(await asyncio.gather(*map(attempt, ATTACKS)))
        finally:
            await neighbour.close()
            await sandbox.close()
            await short.close()
            await lean.close()


def command(backend: str, *, ordinary_user: bool) -> list[str]:
    """The command that runs all attacks, optionally as the user 65534 if the current one is root."""
    run = [sys.executable, "-s", str(Path(__file__).resolve()), backend]
    if not ordinary_user or os.geteuid() != 0:
        return run
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "HOME=/tmp", *run]
    needed = [os.path.realpath(sys.base_prefix), sys.prefix, str(Path(__file__).resolve().parents[2])]
    closed = [path for path in map(_closed, needed) if path]
    if not closed:
        return user
    # In a mount namespace of its own, replace the closed folder by an open one that shows only what is needed.
    hidden = [path for path in dict.fromkeys(needed) if path.startswith(f"{closed[0]}/")]
    script = (
        "set -e; keep=$(mktemp -d); mount -t tmpfs none $keep; closed=$1; count=$2; shift 2; i=0; all=\n"
        "while [ $i -lt $count ]; do\n"
        'mkdir $keep/$i; mount --bind "$1" $keep/$i; all="$all $1"; shift; i=$((i+1)); done\n'
        "mount -t tmpfs -o mode=755 none $closed; i=0\n"
        "for path in $all; do mkdir -p $path; mount --bind $keep/$i $path; i=$((i+1)); done\n"
        'exec "$@"'
    )
    return ["unshare", "--mount", "sh", "-c", script, "sh", closed[0], str(len(hidden)), *hidden, *user]


def _closed(path: str) -> str:
    """The first folder on the way to a path that other users cannot enter; empty if there is none."""
    for folder in [*reversed(Path(path).parents), Path(path)]:
        if not folder.stat().st_mode & 0o001:
            return str(folder)
    return ""


if __name__ == "__main__":
    print(json.dumps([asdict(outcome) for outcome in asyncio.run(run_attacks(sys.argv[1]))]))
