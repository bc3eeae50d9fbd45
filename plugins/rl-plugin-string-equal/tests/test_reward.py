"""The three rewards on whole trajectories."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import ValidationError
from rl_plugin_string_equal.config import MathNumericEqualConfig, MathRewardStringEqualConfig, StringEqualConfig
from rl_plugin_string_equal.reward import MathNumericEqual, MathRewardStringEqual, StringEqual
from rlcore.testing import make_trajectory
from rlcore.types import Message, RewardResult, Task, ToolCall

ASKED = Message(role="user", content="How much is 48 + 24?")
CALLED = Message(role="assistant", tool_calls=(ToolCall(name="calculator", arguments={"expression": "48 + 24"}),))


def answered(content: str) -> Message:
    return Message(role="tool", content=content, name="calculator")


def said(content: str) -> Message:
    return Message(role="assistant", content=content)


def judged(reward: Any, fields: dict[str, Any], *messages: Message) -> RewardResult:
    result = asyncio.run(reward(make_trajectory(ASKED, *messages), Task(id="1", messages=(ASKED,), fields=fields)))
    assert isinstance(result, RewardResult)
    return result


def string_equal(response: str, answer: Any, **config: Any) -> float | None:
    return judged(StringEqual(StringEqualConfig(**config)), {"answer": answer}, said(response)).value


def numeric(response: str, answer: Any, *, tool: bool = False, **config: Any) -> float | None:
    before = (CALLED, answered("72")) if tool else ()
    return judged(MathNumericEqual(MathNumericEqualConfig(**config)), {"answer": answer}, *before, said(response)).value


def legacy(answer: Any, *messages: Message) -> float | None:
    return judged(MathRewardStringEqual(MathRewardStringEqualConfig()), {"answer": answer}, *messages).value


@pytest.mark.parametrize(
    ("response", "answer", "ignore", "value"),
    [
        ("Paris", "Paris", [], 1),
        ("paris", "Paris", [], 0),
        ("paris", "Paris", ["case"], 1),
        ("STRASSE", "straße", ["case"], 1),
        (" Paris\n", "Paris", [], 0),
        (" New \n York", "New York", ["whitespace"], 1),
        ("\N{FULLWIDTH DIGIT SEVEN}2", "72", [], 0),
        ("\N{FULLWIDTH DIGIT SEVEN}2", "72", ["unicode"], 1),
        ("Paris.", "Paris", ["case"], 0),
        ("Paris.", "Paris", ["punctuation"], 1),
        ("$5", "5", ["punctuation"], 0),
        ("The Eiffel Tower", "Eiffel tower", ["case", "whitespace"], 0),
        ("The Eiffel Tower", "Eiffel tower", ["articles", "case", "whitespace"], 1),
        ("theatre", "atre", ["articles", "case", "whitespace"], 0),
    ],
)
def test_string_equal_ignores_what_it_is_told_and_nothing_else(
    response: str, answer: str, ignore: list[str], value: float
) -> None:
    assert string_equal(response, answer, ignore=ignore) == value


def test_string_equal_by_default_ignores_case_space_and_unicode_form() -> None:
    assert string_equal("  new  YORK ", "New York") == 1
    assert string_equal("New York.", "New York") == 0


def test_string_equal_takes_numbers_and_lists_of_accepted_answers() -> None:
    assert string_equal("72", 72) == 1
    assert string_equal("NYC", ["New York", "NYC"]) == 1
    assert string_equal("Boston", ["New York", "NYC"]) == 0


@pytest.mark.parametrize("answer", [None, "", "  ", [], ["a", None], {"a": 1}])
def test_string_equal_without_a_usable_answer_is_not_scored(answer: Any) -> None:
    assert string_equal("", answer) is None


def test_string_equal_refuses_a_difference_that_it_does_not_know() -> None:
    with pytest.raises(ValidationError, match="'unicode', 'case', 'whitespace', 'punctuation' or 'articles'"):
        StringEqualConfig(ignore=("cases",))  # type: ignore[arg-type]


def test_the_expected_answer_may_stand_in_another_field() -> None:
    reward = MathNumericEqual(MathNumericEqualConfig(field="solution"))
    assert judged(reward, {"solution": "72"}, said("72")).value == 1
    missing = judged(reward, {"answer": "72"}, said("72"))
    assert missing.value is None
    assert missing.error is not None
    assert "'solution' should hold a number" in missing.error
    assert "found no such field among ['answer']" in missing.error


FAILURES_OF_THE_OLD_REWARD = [
    ("She has 1,234 clips", "1234"),
    ("The cost is 72.00", "72"),
    ("It costs $18.50", "18.50"),
    ("The result is -5", "-5"),
    ("7/2", "7/2"),
    ("1000", "1,000"),
    ("72", 72),
    ("The answer is 72, because 48 + 24 leaves 0", "72"),
]


@pytest.mark.parametrize(("response", "answer"), FAILURES_OF_THE_OLD_REWARD)
def test_what_the_old_reward_gets_wrong_is_kept_there_and_right_here(response: str, answer: Any) -> None:
    assert legacy(answer, CALLED, answered("0"), said(response)) == 0.1
    assert numeric(response, answer) == 1


def test_the_old_reward_finds_only_the_digits_that_stand_last() -> None:
    for response, digits in [("1,234", "234"), ("72.00", "00"), ("$18.50", "50"), ("-5", "5"), ("7/2", "2")]:
        assert legacy(digits, CALLED, answered("0"), said(response)) == 1.0


def test_the_old_reward_without_a_tool_message_is_zero_and_wrong_with_one_a_tenth() -> None:
    assert legacy("72", said("72")) == 0.0
    assert legacy("72", CALLED) == 0.0
    assert legacy("72") == 0.0
    assert legacy("72", CALLED, answered("72"), said("71")) == 0.1
    assert legacy("72", CALLED, answered("72"), said("no idea")) == 0.1
    assert legacy("72", CALLED, answered("Error"), said("72")) == 1.0


def test_the_old_reward_takes_a_last_tool_message_for_the_response() -> None:
    assert legacy("72", CALLED, answered("72")) == 1.0
    assert legacy("72", CALLED, answered("71")) == 0.1
    assert numeric("", "72", tool=True) == 0


def test_the_old_reward_reads_any_unicode_digits_and_compares_them_as_they_are() -> None:
    assert legacy("\N{FULLWIDTH DIGIT SEVEN}", CALLED, answered("0"), said("\N{FULLWIDTH DIGIT SEVEN}")) == 1.0
    assert legacy("7", CALLED, answered("0"), said("\N{FULLWIDTH DIGIT SEVEN}")) == 0.1
    assert legacy(None, CALLED, answered("0"), said("nothing")) == 1.0


def test_the_old_reward_without_an_answer_field_is_not_scored() -> None:
    assert judged(MathRewardStringEqual(MathRewardStringEqualConfig()), {}, said("72")).value is None


def test_math_numeric_equal_is_one_zero_or_not_scored() -> None:
    assert numeric("the answer is 72 clips", "72") == 1
    assert numeric("the answer is 71 clips", "72") == 0
    assert numeric("I do not know", "72") == 0
    assert numeric("", "72") == 0
    assert numeric("9" * 10**6, "72") == 0
    assert numeric("72", "seventy-two") is None
    assert numeric("0.3333", "1/3") == 0
    assert numeric("50%", "50") == 1
    assert numeric("50%", "0.5") == 0


def test_math_numeric_equal_can_ask_for_a_tool_and_give_partial_credit() -> None:
    assert numeric("72", "72", require_tool=True) == 0
    assert numeric("72", "72", require_tool=True, tool=True) == 1
    assert numeric("71", "72", partial_credit=0.1, tool=True) == 0.1
    assert numeric("71", "72", partial_credit=0.1) == 0
    assert numeric("no idea", "72", partial_credit=0.1, tool=True) == 0


def test_math_numeric_equal_says_what_it_saw() -> None:
    result = judged(MathNumericEqual(MathNumericEqualConfig()), {"answer": "72"}, CALLED, answered("72"), said("so 71"))
    assert dict(result.components) == {"equal": 0.0, "readable": 1.0, "used_tool": 1.0}
