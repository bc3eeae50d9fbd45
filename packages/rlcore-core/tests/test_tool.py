from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore.episodes.threads import run_in_thread
from rlcore.episodes.tool import Tool, ToolError, ToolResult, shorten, tool
from rlcore.errors import EnvironmentFailure, ToolFailure, UserError
from rlcore.types import Message, Task, freeze

if TYPE_CHECKING:
    from decimal import Decimal

TASK = Task(id="t", messages=(Message(role="user", content="?"),), fields={"answer": "72"})


def call(made: Tool, **arguments: object) -> ToolResult:
    return asyncio.run(made.call(arguments, task=TASK))


def parameters(function: Any) -> dict[str, Any]:
    return tool(function).schema.as_json()["function"]["parameters"]


@pytest.mark.parametrize("value", [[[]] * 5_000_000, {"a": [[[0] * 1000] * 1000] * 1000}], ids=["many", "shared"])
def test_a_value_of_too_many_items_fails_at_once(value: Any) -> None:
    @tool
    def answer() -> object:
        """Answer."""
        return value

    start = time.process_time()
    with pytest.raises(ToolFailure, match="more than 200,000 items"):
        call(answer)
    assert time.process_time() - start < 2


def test_schema_has_openai_function_form_with_docstring_texts() -> None:
    @tool
    def search(query: str, limit: int = 5, *, threshold: float | None = None, mode: Literal["web", "news"]) -> str:
        """Search the web.

        It is slow.

        Args:
            query (str): what to look for,
                in words
            limit: how many
        Returns:
            text: not shown to the model
        """
        return ""

    assert search.schema.as_json() == {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the web.\n\nIt is slow.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "what to look for, in words"},
                    "limit": {"type": "integer", "description": "how many", "default": 5},
                    "threshold": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                    "mode": {"type": "string", "enum": ["web", "news"]},
                },
                "required": ["query", "mode"],
            },
        },
    }


def test_nested_hints_become_nested_schemas() -> None:
    def f(a: list[dict[str, list[int]]], b: Optional[bool], c: Union[int, str, None] = None) -> str:  # noqa: UP045, UP007
        """Do it."""
        return ""

    assert parameters(f)["properties"] == {
        "a": {
            "type": "array",
            "items": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
        },
        "b": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        "c": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
    }


def test_task_is_given_to_the_function_and_hidden_from_the_model() -> None:
    @tool
    def peek(digit: int, task: Task) -> str:
        """Peek."""
        return task.fields["answer"][digit]

    assert list(peek.schema.parameters["properties"]) == ["digit"]
    assert call(peek, digit=1).text == "2"
    assert "unknown argument 'task'" in call(peek, digit=1, task="mine").text


def bare(value) -> str:  # type: ignore[no-untyped-def]
    """Do it."""
    return ""


def tuple_hint(value: tuple[int, int]) -> str:
    """Do it."""
    return ""


def untyped_list(value: list) -> str:  # type: ignore[type-arg]
    """Do it."""
    return ""


def number_keys(value: dict[int, str]) -> str:
    """Do it."""
    return ""


def odd_literal(value: Literal[b"x"]) -> str:
    """Do it."""
    return ""


def inside(value: list[int | object]) -> str:
    """Do it."""
    return ""


def absent_name(value: Decimal) -> str:
    """Do it."""
    return ""


def many(*value: str) -> str:
    """Do it."""
    return ""


@pytest.mark.parametrize(
    "function", [bare, tuple_hint, untyped_list, number_keys, odd_literal, inside, absent_name, many]
)
def test_hint_without_a_schema_is_rejected_with_the_parameter_name(function: Any) -> None:
    with pytest.raises(UserError, match="parameter 'value'") as error:
        tool(function)
    assert error.value.where is not None
    assert function.__name__ in error.value.where
    assert error.value.fix


def test_docstring_is_required_and_must_match_the_parameters() -> None:
    def silent(x: int) -> str:
        return ""

    def wrong(number: int) -> str:
        """Do it.

        Args:
            nunber: a number
        """
        return ""

    with pytest.raises(UserError, match="tool name must"):
        tool(name="add up")(wrong)
    with pytest.raises(UserError, match="needs a docstring"):
        tool(silent)
    with pytest.raises(UserError, match="did you mean 'number'"):
        tool(wrong)


@tool
def typed(
    count: int,
    ratio: float = 0.5,
    names: list[str] | None = None,
    table: dict[str, list[int]] | None = None,
    mode: Literal["a", 1] = "a",
    flag: bool = False,
) -> str:
    """Show what arrived."""
    return repr((count, ratio, names, table, mode, flag))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, ["missing argument 'count' (an integer)"]),
        ({"count": "3"}, ["'count' must be an integer, found \"3\" (string)"]),
        ({"count": True}, ["'count' must be an integer, found true (boolean)"]),
        ({"count": 3.0}, ["'count' must be an integer, found 3.0 (number)"]),
        ({"count": None}, ["'count' must be an integer, found null."]),
        ({"count": 1, "ratio": "0.5"}, ["'ratio' must be a number"]),
        ({"count": 1, "ratio": 10**400}, ["'ratio' must be a number"]),
        ({"count": 1, "names": "x"}, ["'names' must be an array in which each item is a string or null"]),
        ({"count": 1, "names": ["x", 2]}, ["'names[1]' must be a string, found 2 (integer)"]),
        ({"count": 1, "table": {"k": [1, "2"]}}, ["must be an integer", "['k'][1]"]),
        ({"count": 1, "mode": True}, ["'mode' must be one of \"a\", 1, found true"]),
        ({"count": 1, "flag": 1}, ["'flag' must be a boolean"]),
        ({"cuont": 1}, ["unknown argument 'cuont' (did you mean 'count'?)", "missing argument 'count'"]),
        ({"count": 1, "zzz": 1}, ["unknown argument 'zzz'; the arguments are: count, ratio"]),
    ],
)
def test_bad_arguments_are_all_reported_to_the_model(arguments: dict[str, Any], said: list[str]) -> None:
    result = call(typed, **arguments)
    assert result.status == "error"
    for text in said:
        assert text in result.text


def test_valid_arguments_are_passed_as_declared() -> None:
    assert call(typed, count=3, ratio=1, names=None, table={"k": [1]}, mode=1, flag=True).text == (
        "(3, 1.0, None, {'k': [1]}, 1, True)"
    )


def test_frozen_arguments_are_passed_as_plain_lists_and_dicts() -> None:
    result = asyncio.run(typed.call(freeze({"count": 1, "names": ["a"], "table": {"k": [1]}})))
    assert result.text == "(1, 0.5, ['a'], {'k': [1]}, 'a', False)"


@given(
    arguments=st.dictionaries(
        st.sampled_from(["count", "ratio", "names", "table", "mode", "flag", "other"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text("a1é\ud800"),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
            max_leaves=6,
        ),
    )
)
def test_arbitrary_arguments_do_not_raise(arguments: dict[str, Any]) -> None:
    assert call(typed, **arguments).status in {"ok", "error"}


def answering(value: object) -> Tool:
    @tool
    def answer() -> object:
        """Answer."""
        return value

    return answer


@pytest.mark.parametrize(
    ("value", "text"),
    [("é\n", "é\n"), (0.5, "0.5"), (None, "null"), ({"a": [1, "é"]}, '{"a": [1, "é"]}'), ((1, 2), "[1, 2]")],
)
def test_results_are_text_or_converted_to_json(value: object, text: str) -> None:
    assert call(answering(value)) == ToolResult(text)


def test_tool_result_keeps_its_status_reward_and_info() -> None:
    result = ToolResult("done", status="final", reward=0.5, info={"n": 1.0})
    assert call(answering(result)) == result


def test_result_that_is_not_json_is_a_tool_failure() -> None:
    with pytest.raises(EnvironmentFailure, match="returned object"):
        call(answering(object()))


@given(text=st.text("ab\né", max_size=300), limit=st.integers(64, 200))
def test_shortened_text_keeps_both_ends_and_respects_the_limit(text: str, limit: int) -> None:
    short = shorten(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        assert len(short) <= limit
        assert f"{len(text)} characters in total" in short


def test_long_answers_are_shortened_in_the_middle() -> None:
    text = "a" * 3000 + "b" * 3000
    short = call(answering(text)).text
    assert len(short) == 2048
    assert short.startswith("aaaa")
    assert short.endswith("bbbb")
    assert "6000 characters in total" in short


def raising(error: BaseException, *, asynchronous: bool = False) -> Tool:
    def plain() -> str:
        """Fail."""
        raise error

    async def coroutine() -> str:
        """Fail."""
        raise error

    return tool(coroutine if asynchronous else plain)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    "error", [ToolError("no such page"), ValueError("no such page"), ZeroDivisionError("no such page")]
)
def test_call_errors_are_reported_to_the_model(error: Exception, asynchronous: bool) -> None:
    assert call(raising(error, asynchronous=asynchronous)) == ToolResult("Error: no such page", status="error")


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    "error",
    [RuntimeError("x"), ConnectionError("x"), TimeoutError("x"), TypeError("x"), KeyError("x"), StopIteration(1)],
)
def test_backend_failure_is_an_environment_failure(error: Exception, asynchronous: bool) -> None:
    with pytest.raises(EnvironmentFailure, match="failed"):
        call(raising(error, asynchronous=asynchronous))


def test_tool_that_exits_does_not_end_the_process() -> None:
    with pytest.raises(EnvironmentFailure, match="SystemExit"):
        call(raising(SystemExit(3)))


def test_timeout_is_reported_to_the_model_and_does_not_block_the_loop() -> None:
    release = threading.Event()

    @tool(timeout_s=0.05)
    def hangs() -> str:
        """Hang."""
        release.wait(30)
        return "late"

    @tool(timeout_s=0.05)
    async def sleeps() -> str:
        """Sleep."""
        await asyncio.sleep(30)
        return "late"

    async def run() -> list[ToolResult]:
        return await asyncio.gather(*(made.call({}) for made in [hangs, sleeps] * 20))

    start = time.perf_counter()
    results = asyncio.run(run())  # which would also wait for the threads of asyncio's own pool
    assert time.perf_counter() - start < 5
    release.set()
    assert {result.text for result in results} == {
        "Error: hangs did not answer within 0.05 s.",
        "Error: sleeps did not answer within 0.05 s.",
    }


def test_sixty_four_plain_functions_run_concurrently() -> None:
    barrier = threading.Barrier(64)

    @tool
    def meets() -> str:
        """Wait until all 64 are here."""
        barrier.wait(timeout=20)
        return "met"

    async def run() -> list[ToolResult]:
        return await asyncio.gather(*(meets.call({}) for _ in range(64)))

    assert {result.text for result in asyncio.run(run())} == {"met"}


def test_threads_are_reused() -> None:
    async def run() -> None:
        for _ in range(50):
            await run_in_thread(int)
            await asyncio.sleep(0.002)

    before = threading.active_count()
    asyncio.run(run())
    assert threading.active_count() < before + 25


def test_plain_function_that_returns_a_coroutine_is_awaited() -> None:
    async def work() -> str:
        return "done"

    @tool
    def lazy() -> Any:
        """Give a coroutine."""
        return work()

    assert call(lazy).text == "done"


def test_tool_is_callable_and_decorating_it_twice_has_no_effect() -> None:
    assert typed(1)[:2] == "(1"
    assert tool(typed) is typed
    assert tool(name="other")(typed.function).name == "other"
    assert json.loads(json.dumps(typed.schema.as_json()))


def test_method_keeps_its_object() -> None:
    class Shop:
        stock = 3

        def count(self, item: str) -> int:
            """Count."""
            return self.stock

    made = tool(Shop().count)
    assert list(made.schema.parameters["properties"]) == ["item"]
    assert call(made, item="cup").text == "3"
