"""The process that has verifiers. One serves all episodes of a configuration, which mostly wait for the policy."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import IO, Any

from rlcore.errors import EnvironmentFailure, UserError
from rlcore.json_files import parse_json
from rlcore.redaction import redact
from rlcore.transport.process import found_interpreter
from rlcore.transport.variables import variables_for_child

from rl_plugin_verifiers.config import EnvironmentConfig

CHILD = Path(__file__).parent / "inside" / "child.py"
LONGEST = 1 << 26
"""Limit of a line of the process in bytes."""
VARIABLE = "RLCORE_VERIFIERS"
PRINTED_LINES = 20
LONGEST_PRINTED = 500
REACTS_S = 10.0
"""Time for an episode to end after it was cancelled. If it does not, a call of its taskset blocks the process."""
FIX = "install it there, such as with uv pip install --python PYTHON 'verifiers>=0.4,<0.5', or set environment.python"
MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")

Event = Mapping[str, Any]


class TasksetProcess:
    """Started at once. If it fails, all its conversations do.

    Args:
        python: path of the interpreter
        variables: its environment variables, besides those that are passed on

    Raises:
        UserError: there is no such interpreter.
    """

    def __init__(self, python: str, variables: Mapping[str, str]) -> None:
        self.python = python
        self._process = subprocess.Popen(
            [found_interpreter(python), "-u", str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables_for_child(variables),
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self._receivers: dict[int, Callable[[Event], None]] = {}
        self._numbers = count()
        self._given: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._printed: deque[str] = deque(maxlen=PRINTED_LINES)
        self._why = ""
        self.kill = weakref.finalize(self._process, _end, self._process.pid, os.getpid())
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        for work, pipe in zip((self._write, self._read, self._keep), pipes, strict=True):
            threading.Thread(target=work, args=(pipe,), daemon=True).start()

    @property
    def usable(self) -> bool:
        """Whether it can be asked, as far as known."""
        return not self._why

    def begin(self, receive: Callable[[Event], None], call: str, **arguments: Any) -> int:
        """Begin a conversation, and return its number.

        Args:
            receive: gets each event in another thread: an ``ask``, and at last a ``value``, an ``error``, or ``lost``
            call: ``describe``, ``tasks`` or ``play``
            arguments: of the call
        """
        with self._lock:
            number, why = next(self._numbers), self._why
            if not why:
                self._receivers[number] = receive
        if why:
            receive({"lost": why})
        else:
            self.send(number, call=call, arguments=arguments)
        return number

    def send(self, number: int, **values: Any) -> None:
        """Continue a conversation. Never waits."""
        self._given.put(json.dumps({"id": number, **values}).encode() + b"\n")

    def cancel(self, number: int) -> None:
        """End a conversation, or the process, if it does not react."""
        if number in self._receivers:
            self._receivers[number] = lambda event: None
            self.send(number, cancel=True)
            timer = threading.Timer(REACTS_S, self._end_unless_done, (number,))
            timer.daemon = True
            timer.start()

    def ask(self, call: str, *, timeout_s: float, **arguments: Any) -> Any:
        """The value of a call, for blocking code.

        Raises:
            UserError: verifiers is missing, or the taskset cannot be used here.
            EnvironmentFailure: the call failed, or takes too long.
        """
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        number = self.begin(events.put, call, **arguments)
        try:
            return value_of(events.get(timeout=timeout_s), self.python)
        except queue.Empty:
            self.cancel(number)
            raise EnvironmentFailure(f"verifiers did not answer within {timeout_s:g} s{self._shown()}") from None

    def _end_unless_done(self, number: int) -> None:
        if number in self._receivers:
            self._lose("a call of the taskset did not react, and was ended")

    def _write(self, pipe: IO[bytes]) -> None:
        with suppress(OSError), pipe:
            while (line := self._given.get()) is not None:
                pipe.write(line)
                pipe.flush()

    def _read(self, pipe: IO[bytes]) -> None:
        why = ""
        with pipe:
            while not why and (line := pipe.readline(LONGEST)):
                try:
                    event = parse_json(line)
                    number = event["id"]
                    with self._lock:
                        receive = self._receivers.get(number)
                        if "ask" not in event:
                            self._receivers.pop(number, None)
                    if receive is not None:
                        receive(event)
                except (ValueError, TypeError, KeyError):
                    why = "sent an invalid message"
        if not why:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(REACTS_S)
            status = self._process.poll()
            name = signal.Signals(-status).name if status is not None and status < 0 else ""
            why = f"was ended by {name}" if name else f"ended with exit status {status}"
        self._lose(f"the process of verifiers {why}")

    def _keep(self, pipe: IO[bytes]) -> None:
        with pipe:
            while line := pipe.readline(LONGEST_PRINTED):
                self._printed.append(line.decode("utf-8", "replace").rstrip())

    def _lose(self, why: str) -> None:
        """End the process, and tell all conversations."""
        with self._lock:
            self._why = self._why or f"{why}{self._shown()}"
            receivers, self._receivers = self._receivers, {}
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(REACTS_S)
        self._given.put(None)
        for receive in receivers.values():
            receive({"lost": self._why})

    def _shown(self) -> str:
        text = "\n".join(self._printed)
        return f"; it printed last: {redact(text)}" if text else ""


def value_of(event: Event, python: str) -> Any:
    """The value of the last event of a conversation. Raises as `TasksetProcess.ask`."""
    if "value" in event:
        return event["value"]
    text = str(event.get("lost") or event.get("error"))
    if "lost" in event and (missing := MISSING.search(text)):
        found = f"{python} has no {missing[1]}"
        raise UserError("verifiers is not installed", found=found, where="environment.python", fix=FIX)
    if event.get("refused"):
        raise UserError(
            "the taskset cannot be used", found=text, where="environment.taskset", fix="use another taskset"
        )
    raise EnvironmentFailure(text)


def _end(group: int, owner: int) -> None:
    if os.getpid() == owner:  # not in a fork
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


_all: dict[tuple[int, int], TasksetProcess] = {}
_starting = threading.Lock()


def process_of(config: EnvironmentConfig) -> TasksetProcess:
    """The running process of a configuration, which ends with it. Raises as `TasksetProcess`."""
    key = (os.getpid(), id(config))
    with _starting:
        found = _all.get(key)
        if found is None or not found.usable:
            if found is None:
                weakref.finalize(config, _forget, key)
            python = config.python or os.environ.get(VARIABLE) or sys.executable
            found = _all[key] = TasksetProcess(python, config.variables)
    return found


def _forget(key: tuple[int, int]) -> None:
    # Without the lock: the garbage collector may call this in a thread that holds it.
    if (found := _all.pop(key, None)) is not None:
        found.kill()


def world_of(config: EnvironmentConfig, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the process needs to know about a taskset."""
    taskset = str(Path(config.taskset).absolute()) if config.taskset.endswith(".py") else config.taskset
    return {"taskset": taskset, "options": {**config.options, **(options or {})}, "max_turns": config.max_turns}
