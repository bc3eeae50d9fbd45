"""Drawn web pages, their tasks and demonstrations."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from rl_plugin_mind2web.dataset import KINDS, Data
from rl_plugin_mind2web.environment import action_reward
from rl_plugin_mind2web.matching import match
from rlcore_gui.answers import parse
from rlcore_gui.drawn.dataset import DrawnDataConfig
from rlcore_gui.drawn.screens import CELLS
from rlcore_gui.drawn.steps import draw_steps
from rlcore_gui.steps import steps_of

CENTERS = [((column + 0.5) / CELLS, (row + 0.5) / CELLS) for row in range(CELLS) for column in range(CELLS)]
BRIEF = {"evaluation": ["generated"], "instructions": False}


def data(**keys: object) -> Data:
    return Data(DrawnDataConfig.model_validate({"drawn": 300, "held_out": 100, **BRIEF, **keys}))


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_cell_of_the_target_is_the_right_element(kind: str) -> None:
    drawn = draw_steps(random.Random(0), [KINDS[kind]], name="row", elements=(1, 4), use="training", boxes=Data.boxes)
    for _, one in zip(range(60), drawn, strict=False):
        found = [match(replace(one.step.action, position=center), one.step).step for center in CENTERS]
        assert found == [center == one.step.action.position for center in CENTERS]


def test_tasks_have_the_same_number_of_words() -> None:
    """A tiny model does not transfer colours between distances from the picture."""
    tasks = [kind.instruction.format(color="red", value=value) for kind in KINDS.values() for value in kind.values]
    assert len(tasks) == 12
    assert {len(task.split()) for task in tasks} == {6}


def test_labels_score_full_marks_and_guesses_are_answers() -> None:
    for demonstration, step in zip(data().conversations("train"), map(steps_of, data().tasks("train")), strict=True):
        assert action_reward.score(demonstration.messages[-1].text, step[0]).value == 1.0
    texts = [one.messages[-1].text for one in data().demonstrations(200, seed=0)]
    answers = [text for text in texts if text.startswith("<think>")]
    assert 60 <= len(answers) <= 140, "the others are descriptions"
    assert all(parse(text, Data.style.table).strict for text in answers)


def test_task_alone_gives_little_more_than_chance() -> None:
    """With empty pictures, the best answer to a task is its most frequent position."""
    tasks = data(drawn=3000, blank=True).tasks("train")
    assert len({task.images[0] for task in tasks}) == 1
    positions: dict[str, Counter[object]] = {}
    for task in tasks:
        (step,) = steps_of(task)
        positions.setdefault(step.task, Counter())[step.action.position] += 1
    best = sum(counts.most_common(1)[0][1] for counts in positions.values())
    assert best / len(tasks) < 0.35
