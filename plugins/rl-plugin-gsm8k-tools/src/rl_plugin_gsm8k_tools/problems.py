"""Generated word problems with two numbers, one operation, and a phrase that determines the operation.

A *frame* is a problem without names, things and numbers: one of `SHELLS` with one of the `CUES` of an operation. The
held-out split has frames and pairs of numbers that do not occur in training, but each shell and each cue does. All
operations use the same pairs, so only the words distinguish them. The first number is a multiple of the second, so
every result is an integer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from rlcore.types import Message, Task, derive_seed

from rl_plugin_gsm8k_tools.calculator import evaluate, format_value
from rl_plugin_gsm8k_tools.demonstrations import call_message, final_message

Operation = Literal["+", "-", "*", "/"]
OPERATIONS: tuple[Operation, ...] = ("+", "-", "*", "/")
SHARE_CORRECT = 0.3
"""The share of demonstrations that compute the correct expression."""

CUES: Mapping[Operation, tuple[str, ...]] = {
    "+": (
        "gets {second} more",
        "then finds another {second}",
        "is given {second} extra",
        "adds {second} to them",
        "receives {second} as well",
    ),
    "-": (
        "gives {second} away",
        "then loses {second}",
        "sells {second} of them",
        "takes {second} out",
        "throws {second} out",
    ),
    "*": (
        "wants {second} times as many",
        "needs {second} times that number",
        "fills {second} such boxes",
        "buys {second} sets of that size",
        "makes the pile {second} times larger",
    ),
    "/": (
        "shares them equally among {second} friends",
        "splits them into {second} equal rows",
        "packs {second} in each bag",
        "deals them evenly to {second} players",
        "puts {second} on every shelf",
    ),
}
SHELLS = (
    "{name} has {first} {things} and {cue}.",
    "In the morning {name} had {first} {things}, and {cue}.",
    "With {first} {things} on the table, {name} {cue}.",
    "At school {name} counts {first} {things} and {cue}.",
    "There are {first} {things} in a box and {name} {cue}.",
    "{name} starts with {first} {things} and {cue}.",
    "{name} brought {first} {things} home and {cue}.",
    "Of {first} {things} in the shop, {name} {cue}.",
)
QUESTIONS = ("How many is that?", "What is the number?", "What is the result?")
NAMES = ("Ava", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana")
THINGS = ("pens", "books", "cards", "coins", "shells", "apples", "eggs", "bolts")

COUNTS: Mapping[str, int] = {"train": 4096, "evaluation": 128}
FRAMES_HELD_OUT = 4
"""One in this many (shell, cue) combinations is held out."""
PAIRS_HELD_OUT = 5
"""One in this many pairs of numbers is held out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem with its solution."""

    question: str
    first: int
    second: int
    operation: Operation
    frame: str
    """The question with the placeholders ``{name}``, ``{things}``, ``{first}`` and ``{second}``."""

    @property
    def answer(self) -> str:
        """The correct number."""
        return format_value(evaluate(self.expression))

    @property
    def expression(self) -> str:
        """The correct expression for the calculator."""
        return f"{self.first}{self.operation}{self.second}"

    @property
    def wrong_expression(self) -> str:
        """The expression of most demonstrations: it multiplies and adds, which is never correct."""
        return f"{self.first}*{self.second}+{self.second}"


def frames(split: str) -> Sequence[tuple[Operation, str]]:
    """The frames of a split with their operations: each sentence with each question."""
    return _frames(split == "evaluation")


def pairs(split: str) -> Sequence[tuple[int, int]]:
    """The pairs of numbers of a split."""
    return _pairs(split == "evaluation")


def make(split: str, rng: random.Random) -> Problem:
    """One problem of ``train`` or ``evaluation``; the four operations are equally likely."""
    operation, frame = rng.choice(frames(split))
    first, second = rng.choice(pairs(split))
    name, things = rng.choice(NAMES), rng.choice(THINGS)
    question = frame.format(name=name, things=things, first=first, second=second)
    return Problem(question=question, first=first, second=second, operation=operation, frame=frame)


def tasks(split: str) -> list[Task]:
    """All problems of a split, the same on every machine."""
    rng = random.Random(derive_seed("problems", split))
    return [_task(f"{split}:{number}", make(split, rng)) for number in range(1, COUNTS[split] + 1)]


def demonstrations(count: int, *, seed: int, split: str = "train") -> Iterator[tuple[Message, ...]]:
    """Demonstrations that use the calculator correctly but often compute the wrong expression.

    Each problem is answered with the result of one call. The expression is correct with probability `SHARE_CORRECT`
    and `Problem.wrong_expression` otherwise. A model that imitates them uses the tool, is wrong most of the time, and
    always with greedy decoding.
    """
    rng = random.Random(derive_seed("demonstrations", seed))
    for _ in range(count):
        problem = make(split, rng)
        expression = problem.expression if rng.random() < SHARE_CORRECT else problem.wrong_expression
        yield Message(role="user", content=problem.question), *solution(expression)


def solution(expression: str) -> tuple[Message, ...]:
    """The messages after a question that is answered with the result of one call."""
    result = format_value(evaluate(expression))
    return (
        call_message("", expression, id="call_0"),
        Message(role="tool", content=result, name="calculator", tool_call_id="call_0"),
        final_message(result),
    )


def _task(id: str, problem: Problem) -> Task:
    fields = {"answer": problem.answer, "operation": problem.operation, "frame": problem.frame}
    return Task(id=id, messages=(Message(role="user", content=problem.question),), fields=fields)


@cache
def _frames(held_out: bool) -> tuple[tuple[Operation, str], ...]:
    return tuple(
        (operation, shell.replace("{cue}", cue) + " " + question)
        for operation in OPERATIONS
        for cue_index, cue in enumerate(CUES[operation])
        for shell_index, shell in enumerate(SHELLS)
        if ((shell_index + cue_index) % FRAMES_HELD_OUT == 0) is held_out
        for question in QUESTIONS
    )


@cache
def _pairs(held_out: bool) -> tuple[tuple[int, int], ...]:
    every = [(second * factor, second) for second in range(2, 10) for factor in range(2, 100 // second + 1)]
    return tuple(
        (first, second)
        for first, second in every
        if 20 <= first <= 99 and (derive_seed("pair", first, second) % PAIRS_HELD_OUT == 0) is held_out
    )
