"""Drawn phone screens, their tasks and demonstrations."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from rl_plugin_aitw.dataset import KINDS, Data
from rl_plugin_aitw.environment import action_reward
from rl_plugin_aitw.matching import match_all
from rlcore.errors import DataError
from rlcore_gui.actions import Action
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
def test_a_tap_on_another_cell_never_matches(kind: str) -> None:
    drawn = draw_steps(random.Random(0), [KINDS[kind]], name="row", elements=(1, 4), use="training", boxes=Data.boxes)
    taps = [Action(name="CLICK", position=center) for center in CENTERS]
    for _, one in zip(range(60), drawn, strict=False):
        matches = match_all(taps, [one.step] * len(taps))
        assert [match.official for match in matches] == [center == one.step.action.position for center in CENTERS]


def test_labels_score_full_marks_and_guesses_are_answers() -> None:
    for demonstration, step in zip(data().conversations("train"), map(steps_of, data().tasks("train")), strict=True):
        assert action_reward.score(demonstration.messages[-1].text, step[0]).value == 1.0
    texts = [one.messages[-1].text for one in data().demonstrations(200, seed=0)]
    answers = [text for text in texts if text.startswith("<think>")]
    assert 60 <= len(answers) <= 140, "the others are descriptions"
    assert all(parse(text, Data.style.table).strict for text in answers)


def test_splits_share_no_screen() -> None:
    pictures = {split: {task.images[0] for task in data().tasks(split)} for split in ("train", "evaluation")}
    assert not pictures["train"] & pictures["evaluation"]


def test_prompts_without_instructions_have_the_task_and_the_history_only() -> None:
    (message,) = data().tasks("train")[0].messages
    assert message.text.startswith("Task: ")
    (message,) = data(instructions=True).tasks("train")[0].messages
    assert "## Action Space" in message.text


@pytest.mark.long
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


def test_unknown_kind_of_screen_is_refused() -> None:
    with pytest.raises(DataError, match="home, list, form"):
        data(screens=["desk"]).tasks("train")
