"""The process of some environments. Does not import torch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
from rlcore.errors import EnvironmentFailure

from rlcore_trainer.control.environments import answer
from rlcore_trainer.control.slot import Slot


def work(pipe: Connection, makes: Mapping[int, bytes], began: Any) -> None:
    """Answer the messages of `rlcore_trainer.control.processes.AsyncEnvironments` until it closes the pipe.

    Args:
        pipe: receives `rlcore_trainer.control.environments.Calls`, or None to end
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
    reply: Any = (first.observation_space, first.action_space)
    try:
        while True:
            pipe.send(reply)
            calls = pipe.recv()
            if calls is None:
                break
            reply = {}
            for number, call in calls.items():
                began.value = time.monotonic()
                reply[number] = answer(slots[number], *call)
    except (EOFError, OSError, KeyboardInterrupt):
        pass
    for slot in slots.values():
        slot.close()
