"""The data set: every corridor with a given number of doors."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import chain, product
from typing import Annotated

from pydantic import Field
from rlcore import Demonstration, Message, Table, Task

from rl_plugin_locked_doors.environment import OPENS, next_door


class CorridorsConfig(Table):
    """``[data]``. The text below a key is shown with errors and by ``rlcore config show``."""

    doors: Annotated[int, Field(ge=2, le=6)] = 3
    """Number of doors."""


class Corridors:
    """The same tasks on every machine, with an evaluation that training never sees."""

    def __init__(self, config: CorridorsConfig) -> None:
        self.doors = config.doors

    def tasks(self, split: str) -> list[Task]:
        """A third of the corridors is held out for the split ``evaluation``."""
        every = product(OPENS, repeat=self.doors)
        return [corridor(colours) for colours in every if is_held_out(colours) is (split == "evaluation")]

    def demonstrations(self, count: int, *, seed: int) -> Iterator[Demonstration]:
        """Episodes with random keys. An untrained model learns from them what an answer looks like, but no key."""
        rng, tasks = random.Random(seed), self.tasks("train")
        for _ in range(count):
            task = rng.choice(tasks)
            shown = [*task.messages, *map(next_door, task.fields["doors"][1:])]
            guesses = [Message(role="assistant", content=rng.choice(list(OPENS.values()))) for _ in shown]
            yield Demonstration(messages=tuple(chain.from_iterable(zip(shown, guesses, strict=True))))


def corridor(colours: Sequence[str]) -> Task:
    """The task of a corridor. ``fields`` has what environment and reward need to know, but not the model."""
    first = Message(role="user", content=f"A {colours[0]} door.")
    return Task(id="-".join(colours), messages=(first,), fields={"doors": list(colours)})


def is_held_out(colours: Sequence[str]) -> bool:
    """Whether a corridor belongs to the evaluation. Each colour occurs at each place in both splits."""
    return sum(map(list(OPENS).index, colours)) % 3 == 0
