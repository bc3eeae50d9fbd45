"""Steps per second of vector environments: at least 0.9 of bare environments on all cores."""

from __future__ import annotations

import multiprocessing
import os
import time
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from comparison import Comparison
from rlcore_control.environments import Environments, Outcome
from rlcore_control.vector import environments

VERSIONS = ("gymnasium", "numpy")
COUNT = 8


class Busy(gymnasium.Env[Any, Any]):
    """Computes for about ``milliseconds`` in each step, and observes a state and a picture of 64 x 64."""

    observation_space = gymnasium.spaces.Dict(
        {
            "state": gymnasium.spaces.Box(-np.inf, np.inf, (16,)),
            "images/head": gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8),
        }
    )
    action_space = gymnasium.spaces.Box(-1, 1, (14,))

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._observation = {name: np.zeros(part.shape, part.dtype) for name, part in self.observation_space.items()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0
        for number in range(self._rounds):  # work of one core, whatever linear algebra library there is
            total += number * number
        return self._observation, float(total % 2), False, False, {}


def bare(rounds: int, steps: int) -> float:
    """The seconds of the steps of one bare environment."""
    environment, action = Busy(rounds), np.zeros(14, np.float32)
    environment.reset(seed=0)
    started = time.perf_counter()
    for _ in range(steps):
        environment.step(action)
    return time.perf_counter() - started


def bare_on_all_cores(pool: Any, rounds: int, steps: int, cores: int) -> float:
    """The seconds in which each core steps its share of the environments, without exchanging anything."""
    started = time.perf_counter()
    pool.starmap(bare, [(rounds, steps * COUNT // cores)] * cores)
    return time.perf_counter() - started


def vector(made: Environments, steps: int) -> float:
    """The seconds in which each environment makes ``steps`` steps; it gets its next action when it has answered."""
    action = np.zeros(14, np.float32)
    made.reset(dict.fromkeys(range(COUNT), 0))
    remaining = dict.fromkeys(range(COUNT), steps)
    started = time.perf_counter()
    made.act(dict.fromkeys(remaining, action))
    while remaining:
        answers = made.receive()
        assert all(isinstance(answer, Outcome) for answer in answers.values())
        for i in answers:
            remaining[i] -= 1
        made.act({i: action for i in answers if remaining[i]})
        remaining = {i: left for i, left in remaining.items() if left}
    return time.perf_counter() - started


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """In this process with steps of about 1 ms, and in a process per core with steps of about 5 ms."""
    cores = len(os.sched_getaffinity(0))
    steps, one_ms = (2, 100) if smoke else (100, 16_000)
    here, _ = environments([partial(Busy, one_ms)] * COUNT, "sync")
    found = [
        Comparison(
            name="in-this-process",
            ours=partial(vector, here, steps),
            peer=partial(bare, one_ms, steps * COUNT),
            floor=0.9,
        )
    ]
    if cores > 1:
        there, _ = environments([partial(Busy, 5 * one_ms)] * COUNT, "async")
        pool = multiprocessing.get_context("spawn").Pool(cores)
        peer = partial(bare_on_all_cores, pool, 5 * one_ms, steps, cores)
        found.append(Comparison(name=f"on-{cores}-cores", ours=partial(vector, there, steps), peer=peer, floor=0.9))
    return found
