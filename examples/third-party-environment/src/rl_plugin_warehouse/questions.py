"""The data: generated questions, each about one article.

Held-out questions use article numbers and sentences that do not occur in training. The attributes of the article are
random in each question, so the model cannot answer without the tool.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from rlcore import Demonstration, Message, Task

from rl_plugin_warehouse.environment import answer_of, call_of, look_up

ASKED = {
    "price": ("what does {} cost", "what do I pay for {}", "how dear is {}", "what is asked for {}"),
    "stock": ("how many of {} are there", "what is left of {}", "count {}", "is {} scarce"),
    "weight": ("how heavy is {}", "what do I carry with {}", "weigh {}", "how many kilos has {}"),
}
"""Sentences for each attribute that questions ask for."""
HABIT = "shelf"
"""The attribute that a beginner looks up instead. No question asks for it."""
LISTENS = 0.4
"""The probability that a beginner looks up the right attribute."""
OPENINGS = ("Please, ", "Quickly: ", "A customer asks, ", "Tell me, ", "Boss, ", "The clerk wonders, ", "Once more: ")


class Questions:
    """Generated, and the same on every machine."""

    def tasks(self, split: str) -> list[Task]:
        """2048 questions for training and 120 for evaluation."""
        rng = random.Random(split)
        return [draw(rng, split, number) for number in range(120 if split == "evaluation" else 2048)]

    def demonstrations(self, count: int, *, seed: int) -> Iterator[Demonstration]:
        """Correct tool calls of a beginner, mostly with the wrong attribute."""
        rng = random.Random(seed)
        for number in range(count):
            task = draw(rng, "train", number)
            about = task.fields["about"] if rng.random() < LISTENS else HABIT
            found = task.fields["list"][about]
            call = call_of(task.fields["article"], about)
            result = Message(role="tool", content=str(found), name=look_up.name, tool_call_id="call")
            yield Demonstration(messages=(*task.messages, call, result, answer_of(found)), tools=(look_up.schema,))


def draw(rng: random.Random, split: str, number: int) -> Task:
    """One question. One article in seven and one sentence in four are held out."""
    held_out = split == "evaluation"
    article = rng.choice([n for n in range(100, 1000) if (n % 7 == 0) is held_out])
    about = rng.choice(list(ASKED))
    sentences = [
        opening + words
        for i, opening in enumerate(OPENINGS)
        for j, words in enumerate(ASKED[about])
        if ((i + j) % 4 == 0) is held_out
    ]
    question = rng.choice(sentences).format(f"article {article}") + "?"
    attributes = {name: rng.randrange(10, 100) for name in (*ASKED, HABIT)}
    fields = {"article": article, "about": about, "list": attributes, "answer": attributes[about]}
    return Task(id=f"{split}:{number}", messages=(Message(role="user", content=question),), fields=fields)
