"""The three rewards on complete trajectories."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import ValidationError
from rl_plugin_string_equal.config import MathNumericEqualConfig, MathRewardStringEqualConfig, StringEqualConfig
from rl_plugin_string_equal.reward import MathNumericEqual, MathRewardStringEqual, StringEqual
from rlcore.testing import make_trajectory
from rlcore.types import Message, RewardResult, Task, ToolCall

QUESTION = Message(role="user", content="How much is 48 + 24?")
TOOL_CALL = Message(role="assistant", tool_calls=(ToolCall(name="calculator", arguments={"expression": "48 + 24"}),))


def tool_message(content: str) -> Message:
    return Message(role="tool", content=content, name="calculator")


def reply(content: str) -> Message:
    return Message(role="assistant", content=content)


def scored(reward: Any, fields: dict[str, Any], *messages: Message) -> RewardResult:
    result = asyncio.run(
        reward(make_trajectory(QUESTION, *messages), Task(id="1", messages=(QUESTION,), fields=fields))
    )
    assert isinstance(result, RewardResult)
    return result


def string_equal(text: str, answer: Any, **config: Any) -> float | None:
    return scored(StringEqual(StringEqualConfig(**config)), {"answer": answer}, reply(text)).value


def numeric(text: str, answer: Any, *, tool: bool = False, **config: Any) -> float | None:
    before = (TOOL_CALL, tool_message("72")) if tool else ()
    return scored(MathNumericEqual(MathNumericEqualConfig(**config)), {"answer": answer}, *before, reply(text)).value


def agentfly(answer: Any, *messages: Message) -> float | None:
    return scored(MathRewardStringEqual(MathRewardStringEqualConfig()), {"answer": answer}, *messages).value


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
def test_string_equal_ignores_only_the_given_differences(
    response: str, answer: str, ignore: list[str], value: float
) -> None:
    assert string_equal(response, answer, ignore=ignore) == value


def test_string_equal_ignores_case_and_white_space_by_default() -> None:
    assert string_equal("  new  YORK ", "New York") == 1
    assert string_equal("New York.", "New York") == 0


def test_string_equal_accepts_numbers_and_lists_of_answers() -> None:
    assert string_equal("72", 72) == 1
    assert string_equal("NYC", ["New York", "NYC"]) == 1
    assert string_equal("Boston", ["New York", "NYC"]) == 0


@pytest.mark.parametrize("answer", [None, "", "  ", [], ["a", None], {"a": 1}])
def test_string_equal_with_an_invalid_answer_is_not_scored(answer: Any) -> None:
    assert string_equal("", answer) is None


def test_string_equal_rejects_an_unknown_difference() -> None:
    with pytest.raises(ValidationError) as caught:
        StringEqualConfig(ignore=("cases",))  # type: ignore[arg-type]
    (error,) = caught.value.errors()
    assert (error["type"], error["loc"], error["input"]) == ("literal_error", ("ignore", 0), "cases")


def test_expected_answer_can_be_in_another_field() -> None:
    reward = MathNumericEqual(MathNumericEqualConfig(field="solution"))
    assert scored(reward, {"solution": "72"}, reply("72")).value == 1
    missing = scored(reward, {"answer": "72"}, reply("72"))
    assert missing.value is None
    assert missing.error == (
        "task '1': field 'solution' must contain a number, such as 72, '1,000', '72.00' or '7/2'; "
        "found no such field among ['answer']"
    )


ERRORS_OF_AGENTFLY = [
    ("She has 1,234 clips", "1234"),
    ("The cost is 72.00", "72"),
    ("It costs $18.50", "18.50"),
    ("The result is -5", "-5"),
    ("7/2", "7/2"),
    ("1000", "1,000"),
    ("72", 72),
    ("The answer is 72, because 48 + 24 leaves 0", "72"),
]


@pytest.mark.parametrize(("response", "answer"), ERRORS_OF_AGENTFLY)
def test_errors_of_agentfly_are_kept_only_in_its_reward(response: str, answer: Any) -> None:
    assert agentfly(answer, TOOL_CALL, tool_message("0"), reply(response)) == 0.1
    assert numeric(response, answer) == 1


def test_agentfly_reward_compares_only_the_last_digits() -> None:
    for response, digits in [("1,234", "234"), ("72.00", "00"), ("$18.50", "50"), ("-5", "5"), ("7/2", "2")]:
        assert agentfly(digits, TOOL_CALL, tool_message("0"), reply(response)) == 1.0


def test_agentfly_reward_is_zero_without_a_tool_message() -> None:
    assert agentfly("72", reply("72")) == 0.0
    assert agentfly("72", TOOL_CALL) == 0.0
    assert agentfly("72") == 0.0
    assert agentfly("72", TOOL_CALL, tool_message("72"), reply("71")) == 0.1
    assert agentfly("72", TOOL_CALL, tool_message("72"), reply("no idea")) == 0.1
    assert agentfly("72", TOOL_CALL, tool_message("Error"), reply("72")) == 1.0


def test_agentfly_reward_reads_a_final_tool_message() -> None:
    assert agentfly("72", TOOL_CALL, tool_message("72")) == 1.0
    assert agentfly("72", TOOL_CALL, tool_message("71")) == 0.1
    assert numeric("", "72", tool=True) == 0


def test_agentfly_reward_compares_unicode_digits_as_strings() -> None:
    assert (
        agentfly("\N{FULLWIDTH DIGIT SEVEN}", TOOL_CALL, tool_message("0"), reply("\N{FULLWIDTH DIGIT SEVEN}")) == 1.0
    )
    assert agentfly("7", TOOL_CALL, tool_message("0"), reply("\N{FULLWIDTH DIGIT SEVEN}")) == 0.1
    assert agentfly(None, TOOL_CALL, tool_message("0"), reply("nothing")) == 1.0


def test_agentfly_reward_without_an_answer_is_not_scored() -> None:
    assert scored(MathRewardStringEqual(MathRewardStringEqualConfig()), {}, reply("72")).value is None


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


def test_math_numeric_equal_with_required_tool_and_partial_credit() -> None:
    assert numeric("72", "72", require_tool=True) == 0
    assert numeric("72", "72", require_tool=True, tool=True) == 1
    assert numeric("71", "72", partial_credit=0.1, tool=True) == 0.1
    assert numeric("71", "72", partial_credit=0.1) == 0
    assert numeric("no idea", "72", partial_credit=0.1, tool=True) == 0


def test_math_numeric_equal_logs_components() -> None:
    result = scored(
        MathNumericEqual(MathNumericEqualConfig()), {"answer": "72"}, TOOL_CALL, tool_message("72"), reply("so 71")
    )
    assert dict(result.components) == {"equal": 0.0, "readable": 1.0, "used_tool": 1.0}
