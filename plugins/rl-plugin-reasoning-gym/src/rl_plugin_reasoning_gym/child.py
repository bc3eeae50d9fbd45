"""Generates tasks and scores answers with reasoning-gym, in a process that is started by the path of this file.

Stdin is a socket: each line is a JSON object with the name and the arguments of a function, and is answered by a line
with its ``value`` or its ``error``.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

from rl_plugin_reasoning_gym.guards import guard_verifiers
from rl_plugin_reasoning_gym.packing import packed, unpacked

MEMORY = 2 << 30
"""Limit of the address space in bytes. The libraries need 0.3 GiB."""
MAKING_S, SCORING_S = 60.0, 5.0
"""Limits in seconds of processor time of making a task, and of scoring an answer."""
LONGEST_ERROR = 500
SIZE = 500
"""Entries of a data set. Some generators make all of them at once, so more entries are further data sets. The others
add the number of an entry to the seed."""


def main() -> None:
    """Answer every line of stdin."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort must not leave a file
    with suppress(ValueError, OSError):  # macOS does not limit the address space
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(0), "w", encoding="utf-8")
    guard_verifiers()
    calls: Mapping[str, Callable[..., Any]] = {"names": names, "prompts": prompts, "make": make, "score": score}
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = json.dumps({"value": calls[question["call"]](**question["arguments"])})
        except Exception as error:  # a generator may raise anything
            answer = json.dumps({"error": f"{type(error).__name__}: {error}"[:LONGEST_ERROR]})
        print(answer, file=answers, flush=True)


def names() -> list[str]:
    """The names of all generators. ``composite`` is a mixture, which rlcore makes itself."""
    return sorted(set(_module("factory").DATASETS) - {"composite"})


def prompts() -> Mapping[str, str]:
    """The system prompts by name."""
    return dict(_module("utils").SYSTEM_PROMPTS)


def make(generator: Mapping[str, Any], seed: int, start: int, count: int) -> Sequence[Mapping[str, Any]]:
    """The entries with these numbers, without those that the generator fails to make.

    Raises:
        Exception: the options are wrong, or the generator makes none of these entries.
    """
    made, failure = [], None
    wanted = json.dumps(generator)
    for number in range(start, start + count):
        with _limited(MAKING_S):
            dataset = _dataset(wanted, seed + number // SIZE * SIZE)
            try:
                entry = dataset[number % SIZE]
                made.append({name: packed(entry[name]) for name in ("question", "answer", "metadata")})
            except Exception as error:
                failure = error
    if failure is not None and not made:
        raise failure
    return made


def score(generator: Mapping[str, Any], entry: Mapping[str, Any], response: str, tag: str) -> float:
    """The score of a response.

    Raises:
        Exception: the verifier raised it, or returned no number from 0 to 1.
    """
    with _limited(MAKING_S):
        dataset = _dataset(json.dumps(generator), 0)
    with _limited(SCORING_S):
        answer = _module("utils").extract_answer(response, tag) if tag else response.strip()
        value = float(dataset.score_answer(answer, unpacked(entry)))
    if not 0 <= value <= 1:
        raise ValueError(f"the verifier returned {value}, which is not in [0, 1]")
    return value if answer or value == 1 else 0.0


@lru_cache(maxsize=32)  # some read a file
def _dataset(generator: str, seed: int) -> Any:
    """A generator with its options: its own ones, then those of the level, then those of the configuration."""
    factory, wanted = _module("factory"), json.loads(generator)
    kind, config = factory.DATASETS[wanted["name"]]
    options = {}
    if wanted["level"] is not None:
        curriculum = factory.create_curriculum(wanted["name"])
        curriculum.set_global_level(wanted["level"])
        made = curriculum.generate_configuration()
        options = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
    return kind(config(**options | wanted["options"] | {"seed": seed, "size": SIZE}))


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Let the system end this process after this processor time, also in a call of C code."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _module(name: str) -> Any:
    importlib.import_module("reasoning_gym")
    return importlib.import_module(f"reasoning_gym.{name}")


if __name__ == "__main__":
    main()
