"""What is judged."""

from __future__ import annotations

from typing import Any

import pytest
from rl_plugin_llm_judge.answers import UnusableTask, case_of, check_fields, given_answer
from rl_plugin_llm_judge.config import Extract, JudgeConfig
from rlcore.errors import DataError
from rlcore.testing import make_trajectory
from rlcore.types import Message, Task

USER = Message(role="user", content="Which colour?")


@pytest.mark.parametrize(
    ("text", "extract", "answer"),
    [
        ("it is pink", "auto", "it is pink"),
        ("<think>red?</think>\n pink ", "auto", "pink"),
        ("<answer>\n\\boxed{pink}\n</answer>", "auto", "pink"),
        ("<answer> \\boxed{pink} </answer>", "auto", "pink"),
        ("<answer>red</answer> no: <answer>pink</answer>", "auto", "pink"),
        ("<answer>\\boxed{\\frac{1}{2}}</answer>", "auto", "\\frac{1}{2}"),
        ("so \\boxed{1} or \\boxed{2}", "auto", "2"),
        ("so \\boxed{2", "auto", "so \\boxed{2"),
        ("pink", "answer-tag", ""),
        ("pink", "boxed", ""),
        ("so \\boxed{1}", "response", "so \\boxed{1}"),
        ("<answer>pink", "answer-tag", ""),
        ("<answer>pink</answer> <answer>red", "answer-tag", "pink"),
        ("<answer>\n\\boxed{'pink'}\n</answer>", "answer-box", "pink"),
        ("so \\boxed{pink}", "answer-box", ""),
        ("<answer>\\boxed{pink}</answer> \\boxed{red} <answer>blue</answer>", "answer-box", "pink"),
        ("<answer>\\boxed{pink}</answer><code>'<answer>\\boxed{red}</answer>'</code>", "answer-box", "pink"),
        ("<answer>\\boxed{pink}</answer>\n```python\n'<answer>\\boxed{red}</answer>'\n```", "answer-box", "pink"),
        ("<think><answer>\\boxed{red}</answer>", "answer-box", ""),
    ],
)
def test_answer_is_extracted(text: str, extract: Extract, answer: str) -> None:
    assert given_answer(make_trajectory(USER, text), extract) == answer


def test_only_the_policy_answers() -> None:
    printed = Message(role="tool", content="<answer>\\boxed{pink}</answer>", name="python")
    assert given_answer(make_trajectory(USER, "I look.", printed), "answer-tag") == ""
    for extract in ("auto", "answer-tag", "answer-box", "boxed"):  # a guess before the last turn is no answer
        earlier = make_trajectory(USER, "<answer>\\boxed{red}</answer>", printed, "done")
        assert given_answer(earlier, extract) == ("done" if extract == "auto" else ""), extract
    assert given_answer(make_trajectory(USER, printed)) == ""


def case(fields: dict[str, Any], answer: str = "x", **options: Any) -> Any:
    task = Task(id="1", messages=(USER,), fields=fields)
    return case_of(make_trajectory(USER, answer), task, JudgeConfig(**options))


def test_question_and_expected_answer_come_from_the_fields() -> None:
    found = case({"solution": 72, "asked": "How many?"}, field="solution", question_field="asked")
    assert (found.question, found.expected) == ("How many?", ("72",))
    assert case({"answer": ["NYC", "New York"]}).expected == ("NYC", "New York")
    assert case({"answer": "a", "aliases": ["b"]}, aliases_field="aliases").expected == ("a", "b")
    assert case({"answer": "a", "aliases": []}, aliases_field="aliases").expected == ("a",)
    assert case({"answer": "a"}).question == "Which colour?"


@pytest.mark.parametrize("answer", [None, "", " ", [], ["a", None], {"a": 1}, True, float("nan")])
def test_task_without_an_expected_answer_is_unusable(answer: Any) -> None:
    with pytest.raises(UnusableTask, match="'answer'"):
        case({"answer": answer})
    with pytest.raises(UnusableTask, match="'answer'"):
        case({"answer": 10**5000})
    with pytest.raises(UnusableTask, match="'question'"):
        case({"answer": "a"}, question_field="question")


def checked(*tasks: dict[str, Any], **options: Any) -> None:
    check_fields([Task(id="1", messages=(USER,), fields=each) for each in tasks], JudgeConfig(**options), keys="r.")


@pytest.mark.parametrize("option", ["field", "question_field", "aliases_field", "examples_field"])
def test_field_that_no_task_has_is_refused_before_the_run(option: str) -> None:
    more = {"examples_by": {"a": "chart"}} if option == "examples_field" else {}
    checked({"answer": "a"}, {"answer": "b", "known": "c"}, **{option: "known"}, **more)
    with pytest.raises(DataError, match="'knwon'") as error:
        checked({"answer": "a", "known": "b"}, **{option: "knwon"}, **more)
    assert "answer, known" in (error.value.found or "")
    assert f"r.{option}" in (error.value.fix or "")


def test_one_task_that_can_be_judged_is_enough_to_start() -> None:
    checked({"answer": None}, {"answer": "a"})
    with pytest.raises(DataError, match="no task can be judged"):
        checked({"answer": None}, {"answer": []})


@pytest.mark.parametrize("half", [{"examples_by": {"a": "chart"}}, {"examples_field": "data_source"}])
def test_examples_by_value_need_both_options(half: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"examples_field.*examples_by|examples_by.*examples_field"):
        JudgeConfig(**half)


def test_equal_texts_differ_only_in_form() -> None:
    assert case({"answer": "New York"}, " new  york. ").equal
    assert case({"answer": ["NYC", "New York"]}, "nyc").equal
    assert not case({"answer": "pink"}, "it is pink").equal
