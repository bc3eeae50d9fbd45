"""The data set."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field
from rlcore import Demonstration, Message, Table, Task


class PairsConfig(Table):
    """The keys beside ``id`` in ``[data]``. The text below a key is shown with errors."""

    largest: Annotated[int, Field(ge=4, le=999)] = 20
    """Largest number."""


class Pairs:
    """Every pair of numbers, a fifth of them held out. The same tasks on every machine, in the same order."""

    def __init__(self, config: PairsConfig) -> None:
        self.largest = config.largest

    def tasks(self, split: str) -> list[Task]:
        """The tasks of ``train`` or ``evaluation``."""
        numbers = range(self.largest + 1)
        pairs = [(a, b) for a in numbers for b in numbers if a != b and is_held_out(a, b) is (split == "evaluation")]
        random.Random(split).shuffle(pairs)  # the first tasks, which a short run uses, have numbers of all sizes
        return [question(a, b) for a, b in pairs]

    def demonstrations(self, count: int, *, seed: int) -> Iterator[Demonstration]:
        """Conversations for the warm-up of an untrained model, and for its tokenizer. Other models do not need them.

        They name either number, so that the model learns only what an answer looks like.
        """
        rng, tasks = random.Random(seed), self.tasks("train")
        for _ in range(count):
            task = rng.choice(tasks)
            answer = Message(role="assistant", content=str(rng.choice(task.fields["numbers"])))
            yield Demonstration(messages=(*task.messages, answer))


def question(a: int, b: int) -> Task:
    """One task. The reward reads ``fields``; the model sees only the messages."""
    asked = Message(role="user", content=f"Which is larger, {a} or {b}?")
    return Task(id=f"{a}-{b}", messages=(asked,), fields={"numbers": [a, b], "answer": str(max(a, b))})


def is_held_out(a: int, b: int) -> bool:
    """Whether a pair belongs to the evaluation. Both orders of its numbers do."""
    return (a + b) % 5 == 0
