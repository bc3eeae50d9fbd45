"""Multiple choices: their order, and options inside of questions."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rl_plugin_visual_search.config import DataConfig
from rl_plugin_visual_search.data.choices import choice_of, with_options_apart
from rl_plugin_visual_search.data.rows import Row
from rl_plugin_visual_search.dataset import VisualSearchData
from rl_plugin_visual_search.matching import compare
from solid_pictures import picture

COLORS = ("red", "green", "blue", "yellow")


def row(question: str = "What is the color of the glove?", answer: str = "A", **changes: object) -> Row:
    return replace(Row(id="0", question=question, answer=answer, images=(), options=COLORS), **changes)  # type: ignore[arg-type]


def test_always_answering_a_is_right_by_chance_alone() -> None:
    rows = [choice_of(row(f"What is the color of glove {number}?"), seed=0) for number in range(400)]
    letters = Counter(each.answer[0] for each in rows)
    assert set(letters) == set("ABCD")
    assert all(70 < count < 130 for count in letters.values())
    right = sum(compare("A", [each.answer], options=each.options).right for each in rows)
    assert right == letters["A"]


def test_answer_is_the_letter_and_the_text_of_the_same_option() -> None:
    shuffled = choice_of(row(answer="C"), seed=3)
    letter, _, text = shuffled.answer.partition(". ")
    assert text == "blue"
    assert shuffled.options["ABCD".index(letter)] == "blue"
    assert sorted(shuffled.options) == sorted(COLORS)
    for answer in (letter, "blue", "the blue", f"({letter})", shuffled.answer):
        assert compare(answer, [shuffled.answer], options=shuffled.options).right
    for other in {*"ABCD"} - {letter}:
        assert not compare(other, [shuffled.answer], options=shuffled.options).right


@pytest.mark.parametrize("answer", ["B", "green", "(b) green"])
def test_order_of_the_file_has_the_letter_and_the_text_too(answer: str) -> None:
    """A judge that reads the letter alone cannot compare the answer ``green``."""
    kept = choice_of(row(answer=answer), seed=None)
    assert kept == row(answer="B. green")
    for right in ("B", "green", "B. green"):
        assert compare(right, [kept.answer], options=kept.options).right
    assert not compare("A", [kept.answer], options=kept.options).right
    listed = row("Which?\n(A) red\n(B) green", "B", options=())
    answered = choice_of(listed, seed=None)
    assert (answered.question, answered.answer, answered.options) == (listed.question, "B. green", ("red", "green"))
    assert compare("B", [answered.answer], options=answered.options).right


def test_order_depends_on_the_seed_and_the_question_alone() -> None:
    first = choice_of(row(), seed=1)
    reordered = choice_of(row(answer="red", options=COLORS[::-1], id="7"), seed=1)
    assert (first.options, first.answer) == (reordered.options, reordered.answer)
    assert len({choice_of(row(), seed=seed).options for seed in range(40)}) > 10


@pytest.mark.parametrize(
    "question",
    [
        "What is the glove made of?\n(A) rubber\n(B) cotton\n(C) kevlar\nAnswer with the option's letter directly.",
        "What is the glove made of?\nA. rubber\nB. cotton\nC. kevlar",
        "What is the glove made of?\n A) rubber\n B) cotton\n C) kevlar\nPlease answer with the option letter only.",
    ],
)
def test_options_in_the_question_are_taken_apart(question: str) -> None:
    apart = with_options_apart(row(question, "B", options=()))
    assert apart.question == "What is the glove made of?"
    assert apart.options == ("rubber", "cotton", "kevlar")
    assert choice_of(row(question, "B", options=()), seed=0).answer.endswith(". cotton")


@pytest.mark.parametrize(
    "question",
    [
        "What is on the sign?",
        "Is A. Smith in the picture?",
        "Which is larger?\n(A) the cat",
        "Which comes first?\n(B) red\n(C) green",
        "Which one?\n(A) red\nor rather\n(B) green",
        "(A) red\n(B) green",
    ],
)
def test_other_questions_are_left_as_they_are(question: str) -> None:
    free = row(question, "tiger", options=())
    assert choice_of(free, seed=0) == choice_of(free, seed=None) == free


@pytest.mark.parametrize("changes", [{"answer": "purple"}, {"answer": "E"}, {"options": ("red", "Red.", "blue")}])
def test_rows_without_one_right_option_are_left_as_they_are(changes: dict[str, object]) -> None:
    unusual = row(**changes)  # type: ignore[arg-type]
    assert choice_of(unusual, seed=0) == choice_of(unusual, seed=None) == unusual


def test_tasks_of_a_benchmark_file_are_shuffled(tmp_path: Path) -> None:
    (tmp_path / "scene.png").write_bytes(picture())
    text = "What is the glove made of?\n(A) rubber\n(B) cotton\nAnswer with the option's letter."
    line = {"image": "scene.png", "text": text, "category": "direct_attributes", "label": "A", "question_id": 0}
    (tmp_path / "questions.jsonl").write_text(json.dumps(line))
    orders = set()
    for seed in (0, 1, 2, 3, 4, None):
        data = VisualSearchData(DataConfig(evaluation=[str(tmp_path / "questions.jsonl")], option_seed=seed))
        (task,) = data.tasks("evaluation")
        assert task.fields["category"] == "direct_attributes"
        if seed is None:
            assert task.fields["answer"] == "A. rubber"
            assert text in task.messages[0].text
            assert "A. rubber" not in task.messages[0].text, "the options are listed once"
        else:
            letter = task.fields["answer"][0]
            assert f"{letter}. rubber" in task.messages[0].text
            orders.add(letter)
    assert orders == {"A", "B"}
