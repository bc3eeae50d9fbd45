"""A Chromium process, driven through a pipe with the Chrome DevTools Protocol.

The pipe needs no port, no second program and no other package. Calls may come from any thread.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any

from rlcore.errors import EnvironmentFailure, UserError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MACOS = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
ANSWER_S = 30.0
"""Longest time for an answer. A page that is slower is stuck: the slowest answer measured takes 0.3 s."""
LARGEST_MESSAGE = 64 * 2**20
"""Bytes. A screenshot has less than one megabyte."""
FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # /dev/shm has 64 MB in containers
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-breakpad",
    "--no-first-run",
    "--password-store=basic",
    "--use-mock-keychain",
    # No network, including this machine: a proxy at a closed port.
    "--proxy-server=127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
    # A navigation stays in its process, which takes 70 ms instead of 90.
    "--disable-features=BackForwardCache,ProactivelySwapBrowsingInstance,RenderDocument,PaintHolding,Translate",
)
_RUN = '"$@" 3<&0 4>&1 </dev/null >/dev/null; rm -rf "$0"'
"""Runs Chromium with the pipe where it expects it. The shell deletes the profile even if this process is killed."""


def find_chromium() -> str | None:
    """The path of the installed Chromium or Chrome; None without one."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    return found or (MACOS if os.path.exists(MACOS) else None)


def required_chromium() -> str:
    """The path of the installed Chromium.

    Raises:
        UserError: there is none.
    """
    found = find_chromium()
    if found is None:
        raise UserError(
            "the pages of MiniWoB++ need Chromium",
            found=f"none of {', '.join(NAMES)} on PATH",
            fix="install it, for example with apt install chromium",
        )
    return found


class Chromium:
    """A running browser.

    Raises:
        UserError: Chromium is not installed or does not start.
    """

    def __init__(self) -> None:
        program = required_chromium()
        self._profile = tempfile.mkdtemp(prefix="rlcore-miniwob-")
        flags = [*FLAGS, f"--user-data-dir={self._profile}"]
        if sys.platform == "linux" and os.geteuid() == 0:
            flags.append("--no-sandbox")  # Chromium has no sandbox for root
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._process = subprocess.Popen(
            ["sh", "-c", _RUN, self._profile, program, *flags, "about:blank"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[str, Future[Any]]] = {}
        self._alive = True
        self._crashed: set[str] = set()
        self._reader = threading.Thread(target=self._read, name="rlcore-miniwob", daemon=True)
        self._reader.start()
        try:
            self.call("Browser.getVersion")
        except EnvironmentFailure:
            self._errors.seek(0)
            said = self._errors.read(20_000).decode(errors="replace").strip().splitlines()
            self.close()
            fix = f"run {program} --headless about:blank to see why"
            raise UserError("Chromium does not start", found="\n".join(said[-3:]), where=program, fix=fix) from None

    @property
    def alive(self) -> bool:
        """Whether the process answers."""
        return self._alive

    def crashed(self, session: str) -> bool:
        """Whether the page of this session crashed."""
        return session in self._crashed

    def send(self, method: str, session: str = "", **parameters: Any) -> Future[Any]:
        """Send a command without waiting for its answer."""
        answer: Future[Any] = Future()
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        with self._lock:
            if not self._alive or session in self._crashed:
                answer.set_exception(EnvironmentFailure("the browser ended" if not self._alive else "the page crashed"))
                return answer
            self._waiting[number] = session, answer
            with suppress(OSError, ValueError):  # the reader notices a closed pipe
                self._to.write(json.dumps(message).encode() + b"\0")
                self._to.flush()
        return answer

    def call(self, method: str, session: str = "", **parameters: Any) -> Any:
        """The answer to a command.

        Raises:
            EnvironmentFailure: the browser or the page ended, did not answer in time or rejected the command.
        """
        return waited(self.send(method, session, **parameters), method)

    def close(self) -> None:
        """End the process and everything that it started, and delete its profile."""
        with self._lock, suppress(OSError):
            self._to.close()  # Chromium exits when its pipe is closed
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)  # remains if the shell was killed
        self._reader.join()
        self._errors.close()

    def _read(self) -> None:
        buffer = bytearray()
        with suppress(OSError, ValueError):
            while (chunk := os.read(self._from.fileno(), 2**18)) and len(buffer) < LARGEST_MESSAGE:
                buffer += chunk
                *messages, rest = buffer.split(b"\0")
                buffer = bytearray(rest)
                for message in messages:
                    self._take(json.loads(message))
        self._fail(None, "the browser ended")
        self._from.close()

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("method") == "Inspector.targetCrashed":
            self._fail(message.get("sessionId"), "the page crashed")
            return
        with self._lock:
            _, answer = self._waiting.pop(message.get("id", 0), ("", None))
        if answer is None:
            return
        if "error" in message:
            answer.set_exception(EnvironmentFailure(f"Chromium rejects a command: {message['error']}"[:500]))
        else:
            answer.set_result(message["result"])

    def _fail(self, session: str | None, reason: str) -> None:
        """Fail what waits for an answer: of a session, or everything."""
        with self._lock:
            if session is None:
                self._alive = False
            else:
                self._crashed.add(session)
            numbers = [number for number, (one, _) in self._waiting.items() if session in (None, one)]
            failed = [self._waiting.pop(number)[1] for number in numbers]
        for answer in failed:
            answer.set_exception(EnvironmentFailure(reason))


def waited(answer: Future[Any], method: str) -> Any:
    """The result of an answer. Raises as `Chromium.call`."""
    try:
        return answer.result(ANSWER_S)
    except FutureTimeout:
        raise EnvironmentFailure(f"the page did not answer within {ANSWER_S:g} s ({method})") from None


__all__ = ["Chromium", "find_chromium", "required_chromium", "waited"]
