"""The conformance suite, with answers and the values that they must get."""

import pytest
from rl_plugin_final_answer.reward import FinalAnswer, FinalAnswerConfig
from rlcore import Message, Task
from rlcore.testing import RewardCase, check_plugin, make_trajectory

QUESTION = Message(role="user", content="What is 6 times 7?")
TASK = Task(id="1", messages=(QUESTION,), fields={"answer": "42"})
VALUES = {"6*7=42 #### 42": 1.0, "#### 41": 0.1, "#### 41 #### 42": 1.0, "42": 0.0, "": 0.0}


def test_plugin_conforms() -> None:
    cases = [
        RewardCase(task=TASK, trajectory=make_trajectory(QUESTION, text), value=value) for text, value in VALUES.items()
    ]
    check_plugin("final-answer", cases={"final-answer": cases})


def test_reward_of_a_wrong_answer_is_configured() -> None:
    reward = FinalAnswer(FinalAnswerConfig(wrong=0.3))
    assert reward(make_trajectory(QUESTION, "#### 41"), TASK).value == 0.3


def test_a_task_without_an_answer_is_not_scored() -> None:
    with pytest.raises(KeyError):
        FinalAnswer(FinalAnswerConfig())(make_trajectory(QUESTION, "#### 41"), Task(id="2", messages=(QUESTION,)))
