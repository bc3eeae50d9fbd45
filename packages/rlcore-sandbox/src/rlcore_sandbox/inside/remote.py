"""Runs a cell on the machine of a service that keeps nothing between requests.

The service gets this module and those that it imports as files, and runs `main`. A process that never runs code of the
model forks one that does, limits its time, collects what it prints, and writes the result to a file at the end.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

from rlcore_sandbox.inside import session
from rlcore_sandbox.inside.cells import NAMES
from rlcore_sandbox.inside.figures import preload
from rlcore_sandbox.inside.frames import BrokenFrame, Decoder, encode
from rlcore_sandbox.inside.output import MOST_BYTES, Output
from rlcore_sandbox.inside.processes import adopt_orphans, kill_orphans, kill_tree
from rlcore_sandbox.isolation import limits

REQUEST, RESULT = "rlcore-request.json", "rlcore-result.json"
"""Files in the working directory."""
STARTED = "rlcore driver started"
"""Printed before the session starts."""
READY = "rlcore session ready"
"""Printed before any code of the model runs. What goes wrong later may be its work."""
CHUNK = 262_144
START_S = 60.0
"""Time for the process that runs the cell to load the images."""
MODULES = (*NAMES.values(), "matplotlib.backends.backend_agg", "PIL.PngImagePlugin")


class TooLate(Exception):
    """A time limit has passed."""


class TooMuch(Exception):
    """The processes of the code exceed a limit together. The message is the reason."""


class Driver:
    """Runs the cell of one request in a child process, which serves it as `inside.session`.

    Args:
        request: ``code``, ``first`` (the number of its first image), ``images`` in base64, ``limits``
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self._code: str = request["code"]
        self._first: int = request["first"]
        self._images = [base64.b64decode(image) for image in request["images"]]
        self._limits = SimpleNamespace(**request["limits"])
        characters = self._limits.output_characters
        self._decoder = Decoder(
            longest_text=16 * (characters + 1024),
            longest_image=4 * self._limits.image_pixels + 65_536,
            most_images=self._limits.images,
        )
        self._scratch = tempfile.mkdtemp(prefix="cells-")
        self._baseline = 0
        """Memory of the child before the cell, in bytes."""
        self._messages: list[tuple[dict[str, Any], list[bytes]]] = []
        self._outputs: dict[int, Output] = {}

    def run(self) -> dict[str, Any]:
        """The result. Its ``outcome`` is ``reply``, ``timeout``, ``killed`` or ``failed`` (no code has run)."""
        preload(_needed(self._code))
        adopt_orphans()
        connection, theirs = socket.socketpair()
        pipes = [os.pipe(), os.pipe()]
        process = os.fork()
        if not process:
            connection.close()
            self._become_session(theirs, [writing for _, writing in pipes])
        theirs.close()
        for _, writing in pipes:
            os.close(writing)
        self._connection = connection
        self._outputs = {reading: Output(self._limits.output_characters) for reading, _ in pipes}
        try:
            return self._supervise(process)
        finally:  # nothing of the code may run when the result is written
            kill_tree(process)
            kill_orphans(())
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _supervise(self, process: int) -> dict[str, Any]:
        stage = "failed"
        start = time.monotonic()
        try:
            self._connection.sendall(encode({}, self._images))
            message, _ = self._message(START_S)
            if "unreadable" in message:
                return {"outcome": "failed", "error": message["unreadable"]}
            self._baseline = limits.private_bytes(f"/proc/{process}")
            print(READY, flush=True)
            stage, start = "killed", time.monotonic()
            self._connection.sendall(encode({"id": 0, "code": self._code, "first": self._first}))
            reply, images = self._message(self._limits.cell_s)
        except TooLate:
            stage = "timeout" if stage == "killed" else stage
            return self._ended(stage, "it took too long", start)
        except TooMuch as reason:
            return self._ended(stage, str(reason), start)
        except BrokenFrame:
            return self._ended(stage, "its result is damaged", start)
        except (OSError, EOFError):
            return self._ended(*_told(stage, process), start)
        told = {name: reply.get(name) for name in ("ok", "value", "error", "omitted")}
        encoded = [base64.b64encode(image).decode("ascii") for image in images]
        return {**self._ended("reply", "", start), **told, "images": encoded}

    def _ended(self, outcome: str, reason: str, start: float) -> dict[str, Any]:
        self._drain()
        stdout, stderr = (output.text() for output in self._outputs.values())
        seconds = time.monotonic() - start
        return {"outcome": outcome, "error": reason, "stdout": stdout, "stderr": stderr, "seconds": seconds}

    def _message(self, timeout_s: float) -> tuple[dict[str, Any], list[bytes]]:
        """The next message of the child. What it prints meanwhile is collected.

        Raises:
            TooLate: there is none within this time.
            TooMuch: the code exceeds a limit that is checked.
            EOFError: the child has closed its connection.
            BrokenFrame: it is damaged.
        """
        now = time.monotonic()
        end, check_at = now + timeout_s, now + limits.INTERVAL_S
        while not self._messages:
            waiting = [self._connection.fileno(), *self._outputs]
            ready, _, _ = select.select(waiting, [], [], max(0.0, min(end, check_at) - time.monotonic()))
            self._read(ready)
            now = time.monotonic()
            if self._messages:
                break
            if now > end:
                raise TooLate
            if now > check_at:
                self._check()
                check_at = time.monotonic() + limits.INTERVAL_S
        return self._messages.pop(0)

    def _check(self) -> None:
        """Check the limits that the kernel does not have here.

        Raises:
            TooMuch: one is exceeded.
        """
        most, own = self._limits, os.getpid()
        processes = limits.tree([own]) - {own}
        if any(output.total > MOST_BYTES for output in self._outputs.values()):
            raise TooMuch(f"it printed more than {MOST_BYTES // 2**20} MiB")
        if limits.threads(processes) > most.processes:
            raise TooMuch(f"it had more than {most.processes} processes and threads")
        if limits.memory_status(processes, most, self._baseline):
            raise TooMuch(f"it needed more than {most.memory_mb} MiB in all its processes")
        if limits.files_status(processes, most, self._scratch):
            raise TooMuch(f"it wrote more than {most.file_mb} MiB of files, or too many of them")

    def _read(self, ready: Sequence[int]) -> None:
        for descriptor in ready:
            if descriptor in self._outputs:
                if data := os.read(descriptor, CHUNK):
                    self._outputs[descriptor].add(data)
                else:
                    time.sleep(0.001)  # closed by the code: the connection decides
            else:
                data = self._connection.recv(CHUNK)
                if not data:
                    raise EOFError
                self._messages += self._decoder.feed(data)

    def _drain(self) -> None:
        """Collect what is in the pipes, at most some chunks: a process that was left behind may write for ever."""
        for descriptor, output in self._outputs.items():
            os.set_blocking(descriptor, False)
            for _ in range(64):
                try:
                    data = os.read(descriptor, CHUNK)
                except BlockingIOError:
                    break
                if not data:
                    break
                output.add(data)
            os.set_blocking(descriptor, True)

    def _become_session(self, connection: socket.socket, outputs: list[int]) -> NoReturn:
        try:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(outputs[0], 1)
            os.dup2(outputs[1], 2)
            own = os.dup2(connection.fileno(), 3, inheritable=False)
            connection.detach()
            os.closerange(4, 4096)
            os.chdir(self._scratch)
            os.environ.update(dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR"), self._scratch))
            limits.apply_limits(self._limits, processes=None)
            session.serve(own, self._limits)
        finally:
            os._exit(session.BROKEN_STATUS)


def main() -> None:
    """Read the request, run it, and write the result."""
    with open(REQUEST, encoding="utf-8") as file:
        request = json.load(file)
    print(STARTED, flush=True)
    result = Driver(request).run()
    with open(f"{RESULT}.part", "w", encoding="ascii") as file:
        json.dump(result, file)
    os.replace(f"{RESULT}.part", RESULT)


def _needed(code: str) -> list[str]:
    """The modules whose names are in the code. Importing them takes as long as most cells."""
    needed = [module for module in MODULES if module.split(".")[0] in ("PIL", "io", "base64", "math")]
    drawing = "plt" in code or "matplotlib" in code
    needed += [module for module in MODULES if drawing and module.startswith("matplotlib")]
    return [*needed, "numpy"] if drawing or "np" in code or "numpy" in code else needed


def _told(stage: str, process: int) -> tuple[str, str]:
    """The outcome and the reason when the child has ended."""
    end = time.monotonic() + 5.0
    status: int | None = None
    while status is None and time.monotonic() < end:
        ended, found = os.waitpid(process, os.WNOHANG)
        if ended:
            status = os.waitstatus_to_exitcode(found)
        else:
            time.sleep(0.005)
    if status in (session.CPU_STATUS, -signal.SIGXCPU):
        return ("timeout" if stage == "killed" else stage), "it used too much CPU time"
    if status is None:
        return stage, "it closed its connection"
    return stage, f"signal {-status} ended its process" if status < 0 else f"it ended its process with status {status}"


if __name__ == "__main__":
    main()
