"""The process of some environments. Does not import torch."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
from rlcore.errors import EnvironmentFailure

from rlcore_control.environments import answer
from rlcore_control.episode_player import Slot

EVERY_S = 2e-3
"""While further calls wait, answers are sent at most this often, in seconds: a message then costs little."""


def work(pipe: Connection, makes: Mapping[int, bytes], began: Any) -> None:
    """Answer the messages of `rlcore_control.processes.AsyncEnvironments` until it closes the pipe.

    Args:
        pipe: receives `rlcore_control.environments.Calls`, or None to end
        makes: pickled functions that create an environment each, by number
        began: shared number, the time (``time.monotonic``) at which the present call of an environment began
    """
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
    except (EOFError, OSError, KeyboardInterrupt):
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
