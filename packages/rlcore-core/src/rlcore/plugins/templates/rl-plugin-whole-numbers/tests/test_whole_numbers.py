"""The conformance suite, and the tool as a model calls it."""

import asyncio

import pytest
from rl_plugin_whole_numbers.tool import calculator
from rlcore.testing import check_plugin


def test_plugin_conforms() -> None:
    check_plugin("whole-numbers")


@pytest.mark.parametrize(("expression", "text"), [("12*7", "84"), ("12 * 7 + 1", "85"), ("7/2", "3")])
def test_calls_are_computed(expression: str, text: str) -> None:
    assert asyncio.run(calculator.call({"expression": expression})).text == text


@pytest.mark.parametrize("expression", ["__import__('os')", "9**9**9", "1" * 1000, "1/0", ""])
def test_hostile_calls_are_answered_with_an_error(expression: str) -> None:
    assert asyncio.run(calculator.call({"expression": expression})).status == "error"
