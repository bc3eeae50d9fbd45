"""Generated questions about scenes, with balanced answers and a chain of thought.

Every answer of a question's text is equally frequent, so the text alone gives chance accuracy.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rl_plugin_visual_cot.scenes import COLORS, PLACES, SHAPES, Scene, draw_scene

OPENING = "Please answer based on the image content: "
DESCRIPTION = "Please describe the image."
NUMBERS = ("zero", "one", "two", "three", "four")
NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about a scene."""

    kind: str
    text: str
    answer: str
    reasoning: str
    """The chain of thought that leads to the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A scene with a question."""

    scene: Scene
    question: Question


def answers(kind: str, most: int) -> Sequence[str]:
    """All answers to a kind of question, in lower case. ``most`` is the largest number of objects."""
    return {
        "color": tuple(COLORS),
        "shape": SHAPES,
        "corner": PLACES,
        "count": NUMBERS[1 : most + 1],
        "exists": ("yes", "no"),
    }[kind]


KINDS = ("color", "shape", "corner", "count", "exists")


def chance(kinds: Sequence[str], most: int) -> float:
    """Return the best accuracy without the picture."""
    return sum(1 / len(answers(kind, most)) for kind in kinds) / len(kinds)


def generate(
    rng: random.Random, *, kinds: Sequence[str], most: int, held_out: bool, others: int | None = None
) -> Iterator[Asked]:
    """Yield scenes with questions without end, each kind equally often.

    Args:
        rng: source of all randomness
        kinds: kinds of questions, from `KINDS`
        most: largest number of objects in a scene
        held_out: whether to draw held-out scenes, see `draw_scene`
        others: largest number of objects besides the one that a question is about; None for ``most - 1``. Pictures to
            count objects have up to ``most``
    """
    fewer = most if others is None else min(most, 1 + others)
    given: dict[str, Counter[str]] = {}
    while True:
        for kind in rng.sample(list(kinds), len(kinds)):
            possible = answers(kind, most)
            while True:
                scene = draw_scene(rng, rng.randint(1, most if kind == "count" else fewer), held_out=held_out)
                question = ask(rng, kind, scene)
                counts = given.setdefault(question.text, Counter())
                answer = question.answer.lower()
                if counts[answer] <= min(counts[one] for one in possible):
                    break
            counts[answer] += 1
            yield Asked(scene=scene, question=question)


def ask(rng: random.Random, kind: str, scene: Scene) -> Question:
    """Return a question of a kind about a scene."""
    thing = rng.choice(scene)
    if kind == "color":
        return _question(kind, f"What color is the {thing.shape}?", thing.color, thing.shape, thing.place)
    if kind == "shape":
        return _question(kind, f"Which shape is {thing.color}?", thing.shape, thing.color, thing.place)
    if kind == "corner":
        return _question(kind, f"In which corner is the {thing.shape}?", thing.place, thing.shape, thing.place)
    if kind == "count":
        places = ", ".join(one.place for one in scene)
        return _question(kind, "How many shapes are there?", NUMBERS[len(scene)], "shape", places)
    return _exists(rng, scene)


def _exists(rng: random.Random, scene: Scene) -> Question:
    """Half of the wrong pairs consist of a colour and a shape that both occur, if there are several objects."""
    thing = rng.choice(scene)
    color, shape = thing.color, thing.shape
    if rng.random() < 0.5:
        others = [one.shape for one in scene if one != thing]
        if not others or rng.random() < 0.5:
            others = [one for one in SHAPES if one != shape]
        shape = rng.choice(others)
        if rng.random() < 0.3:
            color = rng.choice(list(COLORS))
    found = [one for one in scene if one.color == color]
    place = found[0].place if found else NONE
    answer = "yes" if any(one.shape == shape for one in found) else "no"
    return _question("exists", f"Is there a {color} {shape}?", answer, color, place, looked_for=shape)


def _question(kind: str, text: str, answer: str, selected: str, place: str, looked_for: str = "") -> Question:
    reasoning = f"SELECT({selected}): {place}.\nQUERY({looked_for or kind}): {answer}."
    return Question(kind=kind, text=OPENING + text, answer=answer.capitalize(), reasoning=reasoning)


def describe(scene: Scene) -> Question:
    """Return the request to describe a scene."""
    places = ", ".join(one.place for one in scene)
    things = ", ".join(f"{one.color} {one.shape}" for one in scene)
    return Question(
        kind="description",
        text=DESCRIPTION,
        answer=things.capitalize(),
        reasoning=f"SELECT(image): {places}.\nQUERY(image): {things}.",
    )


def guess(rng: random.Random, question: Question, most: int) -> Question:
    """Return the question with a random answer, and a chain of thought that looks at the right place but guesses."""
    answer = rng.choice(answers(question.kind, most))
    opening = question.reasoning.rpartition(": ")[0]
    return replace(question, answer=answer.capitalize(), reasoning=f"{opening}: {answer}.")


__all__ = ["KINDS", "Asked", "Question", "answers", "ask", "chance", "generate", "guess"]
