"""An environment as TRL takes it, and its tasks, with which ``trl-environment`` can be tried."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from rlcore.types import Demonstration, Message, Task, ToolCall, ToolSchema, derive_seed

LARGEST = 12
RIGHT = 0.5
"""Share of demonstrations with the right step. The others have a random one."""
HELD_OUT = 4
"""One in this many pairs of numbers is held out."""
SAMPLES = 500


class Counter:
    """A counter that must be increased by an amount. It needs nothing of rlcore or TRL."""

    def reset(self, start: int, amount: int, **columns: Any) -> str:
        """Set the counter."""
        self.value, self.target, self.calls = start, start + amount, 0
        return f"The counter is at {start}. Bring it {amount} higher."

    def increment(self, step: int) -> str:
        """Increment the counter.

        Args:
            step: The number to add.
        """
        self.value += step
        self.calls += 1
        return f"The counter is at {self.value}."

    def get_reward(self) -> float:
        """Whether the counter is at the target after one call."""
        return float(self.value == self.target and self.calls == 1)


class CounterTasks:
    """Pairs of numbers. The evaluation has pairs that do not occur in training."""

    def tasks(self, split: str) -> Sequence[Task]:
        """All pairs of a split, in a fixed order."""
        return [
            Task(id=f"{start}-{amount}", messages=(), fields={"start": start, "amount": amount})
            for start, amount in _pairs(split)
        ]

    def demonstrations(self, count: int, *, seed: int) -> Iterator[Demonstration]:
        """One call in the right form, but with a random step in half of them."""
        rng, pairs = random.Random(derive_seed("counters", seed)), _pairs("train")
        for _ in range(count):
            start, amount = rng.choice(pairs)
            step = amount if rng.random() < RIGHT else rng.randint(1, LARGEST)
            counter = Counter()
            asked = counter.reset(start, amount)
            call = ToolCall(name=TOOL.name, arguments={"step": step}, id="call_0")
            yield Demonstration(
                messages=(
                    Message(role="user", content=asked),
                    Message(role="assistant", tool_calls=(call,)),
                    Message(role="tool", name=TOOL.name, content=counter.increment(step), tool_call_id=call.id),
                    Message(role="assistant", content=f"It is at {counter.value}."),
                ),
                tools=(TOOL,),
            )

    def texts(self) -> Iterator[str]:
        """Texts for training a tokenizer."""
        for shown in self.demonstrations(SAMPLES, seed=0):
            for message in shown.messages:
                yield message.text
                for call in message.tool_calls:
                    yield f"<tool_call>\n{json.dumps({'name': call.name, 'arguments': dict(call.arguments or {})})}\n"


TOOL = ToolSchema(
    name="increment",
    description="Increment the counter.",
    parameters={
        "type": "object",
        "properties": {"step": {"type": "integer", "description": "The number to add."}},
        "required": ["step"],
    },
)


def _pairs(split: str) -> list[tuple[int, int]]:
    held_out = split == "evaluation"
    pairs = [(start, amount) for start in range(LARGEST) for amount in range(1, LARGEST + 1)]
    return [pair for pair in pairs if (derive_seed("counter", *pair) % HELD_OUT == 0) is held_out]


__all__ = ["Counter", "CounterTasks"]
