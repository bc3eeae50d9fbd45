"""The reward and that of the original program."""

from __future__ import annotations

import pytest
from rl_plugin_visual_cot.config import RewardConfig
from rl_plugin_visual_cot.legacy import is_match, legacy_score
from rl_plugin_visual_cot.prompts import answered
from rl_plugin_visual_cot.rewards import VisualCotReward
from rlcore import Message, Task, UserError
from rlcore.testing import RewardCase, check_plugin, check_reward, make_trajectory

TASK = Task(id="1", messages=(Message(role="user", content="Is it?"),), fields={"answer": "Yes", "question": "Is it?"})


def case(text: str, value: float | None, answer: str = "Yes") -> RewardCase:
    task = Task(id="1", messages=TASK.messages, fields={"answer": answer, "question": "Is it?"})
    return RewardCase(task=task, trajectory=make_trajectory(*TASK.messages, text), value=value)


CASES = [
    case(answered("It is there.", "Yes").text, 1.0),
    case(answered("It is not there.", "Yes").text, 0.9),
    case("<think>It is there.</think> So: <answer>Yes</answer>", 0.8),
    case("<answer>Yes</answer>", 0.7),
    case(answered("Conclusion: no.", "No").text, 0.3),
    case(answered("Conclusion: yes.", "No").text, 0.2),
    case("<answer>No</answer>", 0.0),
    case("<think>It is there.</think>", 0.0),
    case("<think>It is there.</think><answer>Yes", 0.0),
    case("Yes", 0.0),
]


def test_plugin_conforms_to_the_contracts() -> None:
    check_plugin("visual-cot", cases={"visual-cot": CASES})


def test_missing_answer_never_scores_more_than_a_wrong_one() -> None:
    wrong = min(one.value for one in CASES if one.value is not None and "<answer>" in one.trajectory.final_response)
    assert all(one.value <= wrong for one in CASES if "</answer>" not in one.trajectory.final_response)


def test_weights_must_sum_to_one() -> None:
    with pytest.raises(UserError, match="sum to 1"):
        check_reward("visual-cot", options={"accuracy": 1.0})


def test_components_are_reported() -> None:
    (trajectory,) = [one.trajectory for one in CASES if one.value == 0.9]
    result = VisualCotReward(RewardConfig())(trajectory, TASK)
    assert result.components == {"accuracy": 1.0, "format": 1.0, "consistency": 0.0}


FULL = "<think>{}</think><answer>{}</answer>"


@pytest.mark.parametrize(
    ("text", "expected", "value"),
    [
        (FULL.format("It is red.", "red"), "Red", 3.3),
        (FULL.format("It is blue.", "red"), "Red", 2.3),
        (FULL.format("It is red.", "it is surely red"), "Red", 2.8),
        (FULL.format("It is red.", "blue"), "Red", -0.2),
        ("<think>It is red.</think>", "Red", 0.4),
        ("<answer>blue", "Red", -0.8),
        ("", "Red", 0.0),
        ("the <answer> tag <answer>Red</answer>", "Red", -0.6),
        (FULL.format("none", "No, there are not any cars"), "Yes", 0.8 + 2.0 - 0.5 - 0.5),
    ],
)
def test_legacy_reward(text: str, expected: str, value: float) -> None:
    assert legacy_score(text, expected).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("prediction", "expected", "found"),
    [
        ("No, there are not any cars", "Yes", True),
        ("Yes, it is not red", "No", True),
        ("There is nothing left", "No", True),
        ("is", "Yes", True),
        ("on the right, not the left", "Left", True),
        ("It is light brown", "light brown", False),
        ("light brown", "Light Brown", True),
        ("dogs", "dog", False),
        ("west", "Left", True),
        ("can't", "No", True),
    ],
)
def test_legacy_matcher_has_its_known_errors(prediction: str, expected: str, found: bool) -> None:
    assert is_match(prediction, expected) is found
