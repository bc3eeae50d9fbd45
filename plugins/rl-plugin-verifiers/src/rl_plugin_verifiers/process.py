"""The process that has verifiers. One serves all episodes of a configuration, which mostly wait for the policy."""

from __future__ import annotations

import os
import queue
import re
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from rlcore.errors import EnvironmentFailure, UserError
from rlcore.transport.lines import Lines
from rlcore.transport.process import ChildProcess, found_interpreter
from rlcore.transport.remote import Ended
from rlcore.transport.variables import variables_for_child

from rl_plugin_verifiers.config import EnvironmentConfig

CHILD = Path(__file__).parent / "inside" / "child.py"
LONGEST = 1 << 26
"""Limit of a line of the process in bytes."""
VARIABLE = "RLCORE_VERIFIERS"
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
        self._process = ChildProcess([found_interpreter(python), "-u", str(CHILD)], variables_for_child(variables))
        self._lines = Lines(self._process, LONGEST)
        self._lock = threading.Lock()
        self._receivers: dict[int, Callable[[Event], None]] = {}
        self._numbers = count()
        self._given: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._why = ""
        self.kill = self._process.kill
        for work in (self._write, self._read):
            threading.Thread(target=work, daemon=True).start()

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
        self._given.put({"id": number, **values})

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
            raise EnvironmentFailure(f"verifiers did not answer within {timeout_s:g} s{self._process.tail()}") from None

    def _end_unless_done(self, number: int) -> None:
        if number in self._receivers:
            self._lose(f"a call of the taskset did not react, and was ended{self._process.tail()}")

    def _write(self) -> None:
        with suppress(Ended):  # the other thread tells why
            while (event := self._given.get()) is not None:
                self._lines.send(event)

    def _read(self) -> None:
        try:
            while True:
                event = self._lines.receive()
                number = event["id"]
                with self._lock:
                    receive = self._receivers.get(number)
                    if "ask" not in event:
                        self._receivers.pop(number, None)
                if receive is not None:
                    receive(event)
        except Ended as ended:
            self._lose(f"the process of verifiers {self._process.why(ended)}")
        except (TypeError, KeyError):
            self._lose(f"the process of verifiers sent an invalid message{self._process.tail()}")

    def _lose(self, why: str) -> None:
        """End the process, and tell all conversations."""
        with self._lock:
            self._why = self._why or why
            receivers, self._receivers = self._receivers, {}
        self.kill()
        self._given.put(None)
        for receive in receivers.values():
            receive({"lost": self._why})


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
