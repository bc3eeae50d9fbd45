"""Generated tasks: a note names a box, and the note in each box names the next one.

The evaluation has orders of boxes that do not occur in training.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import permutations

from rlcore.types import Demonstration, Message, Task, ToolCall, ToolSchema, derive_seed

from rlcore_harness.example.agent import TOOL, note

BOXES = ("red", "blue", "green", "yellow", "white", "brown", "orange", "purple")
WRONG = "black"
"""The box of most demonstrations, which is never right."""
SHARE_RIGHT = 0.3
"""Share of the turns of demonstrations with the right box."""
LENGTH = 3
HELD_OUT = 4
"""One in this many orders is held out."""
COUNTS = {"train": 240, "evaluation": 64}
PROMPTS = (
    "Open the boxes that the notes name. The first note says {box}.",
    "Follow the notes from box to box. Begin with {box}.",
    "Find the last box. The note on the table says {box}.",
)


def tasks(split: str) -> list[Task]:
    """All tasks of a split, the same on every machine."""
    orders = _orders(split)
    rng = random.Random(derive_seed("boxes", split))
    chosen = [rng.choice(orders) for _ in range(COUNTS[split])]
    return [
        Task(id=f"{split}:{number}", messages=(_prompt(path, rng),), fields={"path": list(path)})
        for number, path in enumerate(chosen, start=1)
    ]


def demonstrations(count: int, *, seed: int) -> Iterator[Demonstration]:
    """Demonstrations that open boxes in the right form, but most of them `WRONG`.

    A model that imitates them is right in `SHARE_RIGHT` of its turns, and never with greedy decoding.
    """
    rng, orders = random.Random(derive_seed("demonstrations", seed)), _orders("train")
    function = TOOL["function"]
    tool = ToolSchema(**function)  # type: ignore[arg-type]
    for _ in range(count):
        path = rng.choice(orders)
        messages = [_prompt(path, rng)]
        for place, box in enumerate(path):
            opened, name = box if rng.random() < SHARE_RIGHT else WRONG, f"call_{place}"
            call = ToolCall(name=tool.name, arguments={"box": opened}, id=name)
            messages += [
                Message(role="assistant", tool_calls=(call,)),
                Message(role="tool", content=note(list(path[place + 1 :])), name=tool.name, tool_call_id=name),
            ]
        yield Demonstration(messages=tuple(messages), tools=(tool,))


def _prompt(path: tuple[str, ...], rng: random.Random) -> Message:
    return Message(role="user", content=rng.choice(PROMPTS).format(box=path[0]))


def _orders(split: str) -> list[tuple[str, ...]]:
    held_out = split == "evaluation"
    return [
        order for order in permutations(BOXES, LENGTH) if (derive_seed("order", *order) % HELD_OUT == 0) is held_out
    ]
