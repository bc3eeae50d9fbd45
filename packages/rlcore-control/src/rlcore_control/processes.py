"""Environments that are divided among processes, one process per core. Does not import torch."""

from __future__ import annotations

import multiprocessing
import select
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import cloudpickle
from rlcore.errors import EnvironmentFailure
from rlcore.plugins.loading import FILE_MODULE
from rlcore.runs.surroundings import usable_cores
from rlcore.transport.inside.stops import leave_stops_to_main, stops_held

from rlcore_control.environments import Calls, Environments, Make, Slot, answer

START_S = 600.0
"""Longest time of the start of a process and of the creation of its environments, in seconds."""
TIMEOUT_S = 600.0
"""Longest time of one call of an environment, in seconds, if none is given."""


class Child:
    """The process of some environments. It is started again after it ended, or an environment exceeded its time."""

    def __init__(self, makes: Mapping[int, bytes], timeout_s: float) -> None:
        self._makes, self._timeout_s = makes, timeout_s
        self._name = f"environment{'s' * (len(makes) > 1)} {', '.join(map(str, makes))}"
        self._process: Any = None
        self._began: Any = None
        self._called: set[int] = set()
        self.pipe: Connection | None = None

    def start(self) -> None:
        """Start the process; `spaces` then returns the spaces."""
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self._began = context.RawValue("d", time.monotonic())  # of the present call, which the process sets
        self._process = context.Process(target=work, args=(there, self._makes, self._began), daemon=True)
        with stops_held():
            self._process.start()
        there.close()

    def spaces(self) -> Any:
        """Return the spaces of observations and actions, or why the environments cannot be created."""
        assert self.pipe is not None
        try:
            return self.pipe.recv() if self.pipe.poll(START_S) else self._too_late(START_S)
        except (EOFError, OSError):
            return self._ended()

    def send(self, calls: Calls) -> dict[int, EnvironmentFailure]:
        """Make calls, which follow those that were not answered yet. Return the failures of those that cannot be made.

        A call that was not answered when its process ends is a failure, which `answers` returns.
        """
        failed = self._sent(calls)
        self._called.update(calls)
        if failed is None:
            return {}
        lost, self._called = self._called, set()
        return dict.fromkeys(lost, failed)

    @property
    def busy(self) -> bool:
        """Whether the process has calls that it has not answered."""
        return bool(self._called)

    def remaining_s(self) -> float:
        """The seconds that the present call of an environment may take from now on."""
        return float(max(self._began.value + self._timeout_s - time.monotonic(), 0.0))

    def answers(self, ready: bool) -> dict[int, Any]:
        """Return by number what the environments answered, or what went wrong. Empty while they have time left.

        Args:
            ready: whether there is something to receive
        """
        assert self.pipe is not None
        try:
            if ready:
                found = self.pipe.recv()
            elif self.remaining_s() > 0:
                return {}
            else:
                found = self._too_late(self._timeout_s)
        except (EOFError, OSError):
            found = self._ended()
        if isinstance(found, EnvironmentFailure):
            found = dict.fromkeys(self._called, found)
        self._called.difference_update(found)
        return dict(found)

    def release(self) -> None:
        """Ask the process to close its environments."""
        if self.pipe is not None:
            with suppress(OSError):
                self.pipe.send(None)

    def end(self, patience_s: float = 0.0) -> None:
        """End the process."""
        if self.pipe is None:
            return
        self._process.join(timeout=patience_s)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.pipe.close()
        self.pipe = None

    def _sent(self, calls: Calls) -> EnvironmentFailure | None:
        if self.pipe is None and all(name != "reset" for name, _ in calls.values()):
            return EnvironmentFailure(f"the process of {self._name} has failed; call reset first")
        if self.pipe is None:
            self.start()
            if isinstance(failed := self.spaces(), EnvironmentFailure):
                return failed
        assert self.pipe is not None
        if not self.busy:
            self._began.value = time.monotonic()
        try:
            self.pipe.send(calls)
        except OSError:
            return self._ended()
        return None

    def _too_late(self, limit_s: float) -> EnvironmentFailure:
        self.end()
        return EnvironmentFailure(f"{self._name} did not answer within {limit_s:g} s")

    def _ended(self) -> EnvironmentFailure:
        self._process.join(timeout=1)
        status = self._process.exitcode
        self.end()
        return EnvironmentFailure(f"the process of {self._name} ended with exit status {status}")


class AsyncEnvironments(Environments):
    """Environments in several processes, which compute a step at the same time.

    Environment ``i`` is in process ``i % processes``. A process steps its environments one after the other: with one
    process per core, none waits for a core that others use. If a process ends, or is ended because an environment
    exceeded its time, the episodes of all its environments fail.
    """

    def __init__(self, makes: Sequence[Make], *, processes: int | None = None, timeout_s: float | None = None) -> None:
        """Start the processes.

        Args:
            makes: creates one environment each
            processes: their number; one per core if it is None
            timeout_s: longest time of one reset or step of an environment, in seconds; None for `TIMEOUT_S`

        Raises:
            EnvironmentFailure: an environment cannot be created.
        """
        self.num_envs = len(makes)
        count = min(self.num_envs, processes or usable_cores())
        for name in [name for name in sys.modules if name.startswith(FILE_MODULE)]:
            cloudpickle.register_pickle_by_value(sys.modules[name])  # another process cannot import it by its name
        pickled = dict(enumerate(map(cloudpickle.dumps, makes)))
        self._children = [
            Child({i: pickled[i] for i in range(k, self.num_envs, count)}, timeout_s or TIMEOUT_S) for k in range(count)
        ]
        self._failed: dict[int, EnvironmentFailure] = {}
        for child in self._children:
            child.start()
        for k, spaces in enumerate([child.spaces() for child in self._children]):
            if isinstance(spaces, EnvironmentFailure):
                self.close()
                raise spaces
            if k == 0:
                self.observation_space, self.action_space = spaces

    def close(self) -> None:
        """Close all environments and end their processes."""
        for child in self._children:
            child.release()
        for child in self._children:
            child.end(patience_s=1.0 if child.busy else 5.0)

    def _submit(self, calls: Calls) -> None:
        shares: dict[int, dict[int, tuple[str, tuple[Any, ...]]]] = {}
        for i, call in calls.items():
            shares.setdefault(i % len(self._children), {})[i] = call
        for k, share in shares.items():
            self._failed |= self._children[k].send(share)

    def _answers(self) -> dict[int, Any]:
        found: dict[int, Any] = dict(self._failed)
        self._failed.clear()
        busy = [child for child in self._children if child.busy]
        while busy and not found:
            pipes = [child.pipe for child in busy if child.pipe]
            ready = wait(pipes, min(child.remaining_s() for child in busy))
            for child in busy:
                found |= child.answers(child.pipe in ready)
        return found


EVERY_S = 2e-3
"""While further calls wait, answers are sent at most this often, in seconds: a message then costs little."""


def work(pipe: Connection, makes: Mapping[int, bytes], began: Any) -> None:
    """Answer the messages of `rlcore_control.processes.AsyncEnvironments` until it closes the pipe.

    Args:
        pipe: receives `rlcore_control.environments.Calls`, or None to end
        makes: pickled functions that create an environment each, by number
        began: shared number, the time (``time.monotonic``) at which the present call of an environment began
    """
    leave_stops_to_main()
    slots: dict[int, Slot] = {}
    for number, make in makes.items():
        try:
            slots[number] = Slot(cloudpickle.loads(make), number)
        except Exception as error:
            pipe.send(EnvironmentFailure(f"environment {number} cannot be created: {type(error).__name__}: {error}"))
            return
    first = next(iter(slots.values())).environment
    try:
        pipe.send((first.observation_space, first.action_space))
        _serve(pipe, slots, began)
    except (EOFError, OSError):
        pass
    for slot in slots.values():
        slot.close()


def _serve(pipe: Connection, slots: Mapping[int, Slot], began: Any) -> None:
    """Make calls in the order in which they arrive. The next calls can arrive before these are answered."""
    waiting: deque[tuple[int, tuple[str, tuple[Any, ...]]]] = deque()
    answers: dict[int, Any] = {}
    arrived = select.poll()  # much faster than pipe.poll, which would be called in each step
    arrived.register(pipe, select.POLLIN)
    sent = time.monotonic()
    while True:
        while not waiting or arrived.poll(0):
            if (calls := pipe.recv()) is None:
                return
            waiting.extend(calls.items())
        number, call = waiting.popleft()
        began.value = time.monotonic()
        answers[number] = answer(slots[number], *call)
        # While half of the calls wait, the parent has time to send the next ones, even if it must wait for a core.
        if not waiting or (len(answers) >= len(waiting) and time.monotonic() - sent > EVERY_S):
            pipe.send(answers)
            answers, sent = {}, time.monotonic()
