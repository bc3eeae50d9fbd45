"""Scores of the real verifiers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import generators_page as table
import pytest
from rl_plugin_reasoning_gym.config import DataConfig, RewardConfig
from rl_plugin_reasoning_gym.dataset import GeneratedTasks
from rl_plugin_reasoning_gym.guards import check_arithmetic
from rl_plugin_reasoning_gym.library import library
from rl_plugin_reasoning_gym.reward import Verified
from rlcore.testing import make_trajectory
from rlcore.types import Task, from_json, to_json

EVALUATES = ("binary_matrix", "countdown", "n_queens", "polynomial_multiplication", "simple_integration")
"""Some of the generators whose verifiers evaluate the answer."""


def task_of(name: str, **options: Any) -> Task:
    data = GeneratedTasks(DataConfig(generators=[{"name": name, "options": options}], train=1, evaluation=1))
    return data.tasks("train")[0]


def scored(task: Task, answer: str, *, tag: str = "answer") -> float | None:
    text = f"<{tag}>{answer}</{tag}>" if tag else answer
    return Verified(RewardConfig(tag=tag))(make_trajectory(*task.messages, text), task).value


@pytest.mark.parametrize("name", [*EVALUATES, "rearc"])
def test_stored_task_accepts_its_answer(name: str) -> None:
    task = task_of(name)
    stored = from_json(Task, to_json(task))  # rearc compares tuples
    assert scored(stored, task.fields["answer"]) == 1
    assert scored(stored, "") == 0


def test_tag_decides_where_the_answer_is() -> None:
    task = task_of("chain_sum")
    answer = task.fields["answer"]
    assert scored(task, answer, tag="final") == scored(task, answer, tag="") == 1
    assert Verified(RewardConfig())(make_trajectory(answer), task).value == 0


def test_score_is_a_component_of_its_generator() -> None:
    task = task_of("chain_sum")
    result = Verified(RewardConfig())(make_trajectory(f"<answer>{task.fields['answer']}</answer>"), task)
    assert result.components == {"chain_sum": 1.0}


def hostile(mark: Path) -> list[str]:
    """Answers that create a file when they are evaluated."""
    call = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    return [call, f"[{call}]", f"[[{call}]]", f"sqrt({call})", f"(lambda: {call})()", f"1 if {call} else 2"]


def refused(name: str, mark: Path) -> None:
    (entry,) = library().ask("make", generator=table.generator(name), seed=0, start=0, count=1)
    for answer in hostile(mark):
        table.scores(name, [entry], [answer])
    assert not mark.exists(), name


@pytest.mark.parametrize("name", EVALUATES)
def test_answers_are_not_evaluated(name: str, tmp_path: Path) -> None:
    refused(name, tmp_path / "mark")


@pytest.mark.long
def test_no_verifier_evaluates_an_answer(tmp_path: Path) -> None:
    for name in library().ask("names"):
        refused(name, tmp_path / "mark")


@pytest.mark.parametrize("text", ["3*x**2 + sin(x)/2 - log(x) + C", "(8 - 2) * 4", "-1.5e3"])
def test_arithmetic_is_allowed(text: str) -> None:
    check_arithmetic(text)


@pytest.mark.parametrize(
    "text", ["x.y", "f(1)", "sqrt(x, evaluate=0)", "[1]", "'a'", "x if y else z", "x == y", "True"]
)
def test_other_expressions_are_not(text: str) -> None:
    with pytest.raises(ValueError, match="no part"):
        check_arithmetic(text)


@pytest.mark.slow
def test_endless_verification_is_ended_and_the_next_works() -> None:
    task = task_of("countdown")
    endless = Verified(RewardConfig())(make_trajectory("<answer>9**9**9</answer>"), task)
    assert (endless.value, endless.components["unverified"]) == (0, 1)
    assert scored(task, task.fields["answer"]) == 1


@pytest.mark.long
def test_page_of_generators_is_up_to_date() -> None:
    assert table.PAGE.read_text(encoding="utf-8") == table.written(), f"run python {table.__file__}"
