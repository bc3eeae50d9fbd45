"""Parts of a model's text: reasoning, the final answer and the expected one."""

from __future__ import annotations

import pytest
from rlcore.report.answers import expected_answer, final_answer, parts_of
from rlcore.testing import make_trajectory


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("plain", [(False, "plain")]),
        ("<think>a</think>b", [(True, "a"), (False, "b")]),
        ("a</think>b", [(True, "a"), (False, "b")]),
        ("<think>cut off", [(True, "cut off")]),
        ("a<think>b</think>c<think>d</think>e", [(False, "a"), (True, "b"), (False, "c"), (True, "d"), (False, "e")]),
        ("<think>\n</think>\n\n", []),
    ],
)
def test_reasoning_is_separated(text: str, parts: list[tuple[bool, str]]) -> None:
    assert parts_of(text) == parts


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>red?</think>\nblue", "blue"),
        ("<think><answer>red</answer></think><answer> blue </answer>", "blue"),
        ("I write <answer>red</answer>, no: <answer>blue</answer>.", "blue"),
        ("<answer>blue", "<answer>blue"),
        ("", ""),
    ],
)
def test_final_answer_is_the_last_complete_one(text: str, answer: str) -> None:
    assert final_answer(make_trajectory("first", text)) == answer


def test_expected_answer_is_a_field_of_the_task() -> None:
    assert expected_answer({"level": 2, "ground_truth": 7}) == "7"
    assert expected_answer({"answer": ["a", "b"]}) is None
    assert expected_answer({}) is None
