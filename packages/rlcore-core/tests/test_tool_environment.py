from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rlcore.errors import EnvironmentFailure, PluginError, UserError
from rlcore.tool import ToolResult, tool
from rlcore.tool_environment import ToolEnvironment
from rlcore.types import EndReason, Message, Step, Task, ToolCall

QUESTION = Message(role="user", content="2 + 2?")
TASK = Task(id="t", messages=(QUESTION,), fields={"answer": "4"})


@tool
def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


@tool
def finish(answer: str, task: Task) -> ToolResult:
    """Give the answer."""
    return ToolResult("ok", status="final", reward=float(answer == task.fields["answer"]), info={"length": len(answer)})


@tool
async def nap(seconds: float) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return f"{seconds:g}"


@tool
def breaks() -> str:
    """Break."""
    raise OSError("the disk is gone")


TOOLS = [add, finish, nap, breaks]


def calls(*calls: tuple[str, dict[str, Any]]) -> Message:
    made = tuple(ToolCall(name=name, arguments=given, id=f"call_{i}") for i, (name, given) in enumerate(calls))
    return Message(role="assistant", tool_calls=made)


def play(environment: ToolEnvironment, *actions: Message) -> list[Step]:
    async def run() -> list[Step]:
        await environment.reset(TASK, seed=0)
        return [await environment.step(action) for action in actions]

    return asyncio.run(run())


def texts(step: Step) -> Sequence[str]:
    return [message.text for message in step.observation.messages]


def test_reset_shows_the_task_after_the_system_prompt_and_names_the_tools() -> None:
    first = asyncio.run(ToolEnvironment(TOOLS, 3, system_prompt="Use tools.").reset(TASK, seed=0))
    assert first.messages == (Message(role="system", content="Use tools."), QUESTION)
    assert [schema.name for schema in first.tools] == ["add", "finish", "nap", "breaks"]
    own = Task(id="t", messages=(Message(role="system", content="Mine."), QUESTION))
    assert (
        asyncio.run(ToolEnvironment(TOOLS, 3, system_prompt="Use tools.").reset(own, seed=0)).messages == own.messages
    )


def test_an_answer_without_calls_ends_the_episode() -> None:
    (step,) = play(ToolEnvironment(TOOLS, 3), Message(role="assistant", content="4"))
    assert (step.terminated, step.truncated, step.end_reason) == (True, False, None)
    assert step.observation.messages == ()


def test_all_calls_run_at_once_and_are_answered_in_order() -> None:
    last = asyncio.Event()

    @tool(timeout_s=30)
    async def wait(name: str) -> str:
        """Wait for the last call: one after the other, this one would run into its deadline."""
        await last.wait()
        return name

    @tool
    async def ring() -> str:
        """End the waiting."""
        last.set()
        return "rung"

    (step,) = play(
        ToolEnvironment([wait, ring], 3), calls(("wait", {"name": "a"}), ("wait", {"name": "b"}), ("ring", {}))
    )
    assert texts(step) == ["a", "b", "rung"]
    assert [message.tool_call_id for message in step.observation.messages] == ["call_0", "call_1", "call_2"]
    assert [message.name for message in step.observation.messages] == ["wait", "wait", "ring"]
    assert {message.role for message in step.observation.messages} == {"tool"}
    assert step.info == {"tool_calls": 3, "tool_errors": 0, "tools/wait": 2, "tools/ring": 1}


def test_every_bad_call_is_answered_with_what_mends_it() -> None:
    unreadable = ToolCall(name="add", error="the call is not valid JSON: Expecting value at character 3", id="call_9")
    action = Message(
        role="assistant", tool_calls=(*calls(("ad", {}), ("add", {"a": 1}), ("xyz", {})).tool_calls, unreadable)
    )
    (step,) = play(ToolEnvironment(TOOLS, 3), action)
    unknown, missing, stranger, broken = texts(step)
    assert unknown == "Error: there is no tool 'ad' (did you mean 'add'?). The tools are: add, finish, nap, breaks."
    assert "missing argument 'b' (an integer)" in missing
    assert "there is no tool 'xyz'. The tools" in stranger
    assert "could not be read: the call is not valid JSON: Expecting value at character 3" in broken
    assert not step.truncated
    assert step.info == {"tool_calls": 4, "tool_errors": 4, "tools/add": 2}


def test_three_turns_of_nothing_but_errors_end_the_episode() -> None:
    bad, good = calls(("nope", {})), calls(("add", {"a": 1, "b": 1}))
    steps = play(ToolEnvironment(TOOLS, 9), bad, bad, good, bad, bad, bad)
    assert [step.truncated for step in steps] == [False] * 5 + [True]
    assert steps[-1].end_reason is EndReason.TOOL_ERROR
    assert not steps[-1].terminated


def test_a_turn_with_one_good_call_is_no_failed_turn() -> None:
    mixed = calls(("nope", {}), ("add", {"a": 1, "b": 1}))
    assert not any(step.truncated for step in play(ToolEnvironment(TOOLS, 9), *[mixed] * 5))


def test_calls_of_the_last_turn_are_not_executed() -> None:
    ran = []

    @tool
    def note() -> str:
        """Note."""
        ran.append(1)
        return "noted"

    first, last = play(ToolEnvironment([note], 2), calls(("note", {})), calls(("note", {})))
    assert (first.truncated, first.terminated) == (False, False)
    assert (last.truncated, last.end_reason) == (True, EndReason.MAX_TURNS)
    assert last.observation.messages == ()
    assert len(ran) == 1


def test_an_answer_in_the_last_turn_is_an_answer() -> None:
    (step,) = play(ToolEnvironment(TOOLS, 1), Message(role="assistant", content="4"))
    assert step.terminated
    assert not step.truncated


def test_a_final_tool_ends_the_episode_with_its_reward_and_numbers() -> None:
    (step,) = play(ToolEnvironment(TOOLS, 3), calls(("finish", {"answer": "4"})))
    assert (step.terminated, step.truncated, step.reward) == (True, False, 1.0)
    assert step.info["length"] == 1


def test_a_broken_backend_fails_the_episode_and_ends_the_other_calls() -> None:
    start = time.perf_counter()
    with pytest.raises(EnvironmentFailure, match="the disk is gone"):
        play(ToolEnvironment(TOOLS, 3), calls(("nap", {"seconds": 20.0}), ("breaks", {})))
    assert time.perf_counter() - start < 5


def test_a_timeout_is_an_error_that_the_model_reads() -> None:
    short = tool(timeout_s=0.02)(nap.function)
    (step,) = play(ToolEnvironment([short], 3), calls(("nap", {"seconds": 20.0})))
    assert texts(step) == ["Error: nap gave no answer within 0.02 s."]
    assert step.info["tool_errors"] == 1


def test_tools_of_one_name_are_refused() -> None:
    with pytest.raises(UserError, match="different names"):
        ToolEnvironment([add, tool(name="add")(nap.function)], 3)


def test_plain_functions_are_taken_for_tools() -> None:
    def double(x: int) -> int:
        """Double."""
        return 2 * x

    (step,) = play(ToolEnvironment([double], 3), calls(("double", {"x": 4})))
    assert texts(step) == ["8"]


def test_tools_are_taken_by_their_import_path(tmp_path: Path) -> None:
    file = tmp_path / "lamps.py"
    file.write_text('def lamp(on: bool) -> str:\n    """Switch it."""\n    return "on"\n', encoding="utf-8")
    environment = ToolEnvironment([f"{file}:lamp"], max_turns=2)
    assert list(environment.tools) == ["lamp"]
    with pytest.raises(PluginError, match="there is no tool 'lampp'"):
        ToolEnvironment(["lampp"], max_turns=2)
