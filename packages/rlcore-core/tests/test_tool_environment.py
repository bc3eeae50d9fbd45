from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rlcore.episodes.context import EpisodeContext
from rlcore.episodes.tool import ToolResult, tool
from rlcore.episodes.tool_environment import ToolEnvironment
from rlcore.errors import EnvironmentFailure, PluginError, ToolFailure, UserError
from rlcore.types import ImagePart, Message, Step, Stop, Task, TextPart, ToolCall

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


def test_reset_returns_system_prompt_task_and_tools() -> None:
    first = asyncio.run(ToolEnvironment(TOOLS, 3, system_prompt="Use tools.").reset(TASK, seed=0))
    assert first.messages == (Message(role="system", content="Use tools."), QUESTION)
    assert [schema.name for schema in first.tools] == ["add", "finish", "nap", "breaks"]
    own = Task(id="t", messages=(Message(role="system", content="Mine."), QUESTION))
    assert (
        asyncio.run(ToolEnvironment(TOOLS, 3, system_prompt="Use tools.").reset(own, seed=0)).messages == own.messages
    )


def test_answer_without_calls_ends_the_episode() -> None:
    (step,) = play(ToolEnvironment(TOOLS, 3), Message(role="assistant", content="4"))
    assert (step.terminated, step.truncated, step.stop) == (True, False, None)
    assert step.observation.messages == ()


def test_calls_run_concurrently_and_are_answered_in_order() -> None:
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


def test_bad_calls_are_answered_with_a_fix() -> None:
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


def test_three_turns_with_only_errors_end_the_episode() -> None:
    bad, good = calls(("nope", {})), calls(("add", {"a": 1, "b": 1}))
    steps = play(ToolEnvironment(TOOLS, 9), bad, bad, good, bad, bad, bad)
    assert [step.truncated for step in steps] == [False] * 5 + [True]
    assert steps[-1].stop is Stop.TOOL_ERRORS
    assert not steps[-1].terminated


def test_turn_with_a_valid_call_is_not_counted_as_failed() -> None:
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
    assert (last.truncated, last.stop) == (True, Stop.MAX_TURNS)
    assert last.observation.messages == ()
    assert len(ran) == 1


def test_answer_in_the_last_turn_ends_the_episode() -> None:
    (step,) = play(ToolEnvironment(TOOLS, 1), Message(role="assistant", content="4"))
    assert step.terminated
    assert not step.truncated


def test_final_tool_ends_the_episode_with_its_reward_and_info() -> None:
    (step,) = play(ToolEnvironment(TOOLS, 3), calls(("finish", {"answer": "4"})))
    assert (step.terminated, step.truncated, step.reward) == (True, False, 1.0)
    assert step.info["length"] == 1


def test_broken_backend_fails_the_episode_and_cancels_other_calls() -> None:
    start = time.perf_counter()
    with pytest.raises(EnvironmentFailure, match="the disk is gone"):
        play(ToolEnvironment(TOOLS, 3), calls(("nap", {"seconds": 20.0}), ("breaks", {})))
    assert time.perf_counter() - start < 5


def test_timeout_is_reported_to_the_model() -> None:
    short = tool(timeout_s=0.02)(nap.function)
    (step,) = play(ToolEnvironment([short], 3), calls(("nap", {"seconds": 20.0})))
    assert texts(step) == ["Error: nap did not answer within 0.02 s."]
    assert step.info["tool_errors"] == 1


def test_tools_with_the_same_name_are_rejected() -> None:
    with pytest.raises(UserError, match="different names"):
        ToolEnvironment([add, tool(name="add")(nap.function)], 3)


def test_plain_functions_become_tools() -> None:
    def double(x: int) -> int:
        """Double."""
        return 2 * x

    (step,) = play(ToolEnvironment([double], 3), calls(("double", {"x": 4})))
    assert texts(step) == ["8"]


def test_tools_can_be_given_as_import_paths(tmp_path: Path) -> None:
    file = tmp_path / "lamps.py"
    file.write_text('def lamp(on: bool) -> str:\n    """Switch it."""\n    return "on"\n', encoding="utf-8")
    environment = ToolEnvironment([f"{file}:lamp"], max_turns=2)
    assert list(environment.tools) == ["lamp"]
    with pytest.raises(PluginError, match="there is no tool 'lampp'"):
        ToolEnvironment(["lampp"], max_turns=2)


IMAGE = b"\x89PNG"


def test_tool_images_follow_the_text() -> None:
    @tool
    def screenshot(caption: str) -> ToolResult:
        """Show the screen."""
        return ToolResult(caption, images=(IMAGE,))

    both = calls(("screenshot", {"caption": "now"}), ("screenshot", {"caption": ""}))
    (step,) = play(ToolEnvironment([screenshot], 3), both)
    first, second = step.observation.messages
    assert first.content == (TextPart(text="now"), ImagePart.of(IMAGE))
    assert second.content == (ImagePart.of(IMAGE),)
    assert step.observation.images == (IMAGE,)


class Notebook:
    """Add a line and read all lines."""

    closed: ClassVar[list[Notebook]] = []

    def __init__(self, context: EpisodeContext) -> None:
        self.lines: list[str] = []
        self.file = context.scratch / "notes"

    def __call__(self, line: str, task: Task, context: EpisodeContext) -> str:
        """Answer.

        Args:
            line: What to add.
        """
        assert self.file.parent == context.scratch
        self.lines.append(line)
        self.file.write_text(task.id)
        return " ".join(self.lines)

    def close(self) -> None:
        self.closed.append(self)


def test_class_is_a_tool_with_state_for_one_episode() -> None:
    made = tool(Notebook)
    assert made.name == "notebook"
    assert made.schema.description == "Add a line and read all lines."
    properties = made.schema.parameters["properties"]
    assert properties == {"line": {"type": "string", "description": "What to add."}}
    Notebook.closed.clear()

    async def episode(environment: ToolEnvironment, *lines: str) -> str:
        with closing(EpisodeContext(TASK)) as context:
            await environment.reset(TASK, seed=0, context=context)
            steps = [await environment.step(calls(("notebook", {"line": line}))) for line in lines]
            assert (context.scratch / "notes").read_text() == TASK.id
            await environment.close()
            await environment.close()
        return steps[-1].observation.messages[0].text

    async def run() -> list[str]:
        environments = [ToolEnvironment([made], 9) for _ in range(3)]
        return await asyncio.gather(*(episode(one, "a", str(n)) for n, one in enumerate(environments)))

    assert asyncio.run(run()) == ["a 0", "a 1", "a 2"]
    assert len(set(map(id, Notebook.closed))) == len(Notebook.closed) == 3


def test_stateful_tool_can_be_async_and_have_no_close() -> None:
    @tool(name="count_up")
    class Counter:
        """Count."""

        total = 0

        async def __call__(self, by: int = 1) -> int:
            self.total += by
            return self.total

    steps = play(ToolEnvironment([Counter], 9), calls(("count_up", {})), calls(("count_up", {"by": 2})))
    assert [texts(step) for step in steps] == [["1"], ["3"]]


def test_other_tools_are_closed_when_one_cannot_be_created_or_closed() -> None:
    class Broken:
        """Break."""

        def __init__(self) -> None:
            raise OSError("the phone is gone")

        def __call__(self) -> str:
            return ""

    class Leaky(Notebook):
        """Leak."""

        async def close(self) -> None:  # type: ignore[override]
            raise OSError("busy")

    async def run(*tools: type) -> None:
        environment = ToolEnvironment(list(tools), 3)
        try:
            await environment.reset(TASK, seed=0)
        finally:
            await environment.close()

    Notebook.closed.clear()
    with pytest.raises(ToolFailure, match="the phone is gone"):
        asyncio.run(run(Notebook, Broken))
    with pytest.raises(ToolFailure, match="busy"):
        asyncio.run(run(Notebook, Leaky))
    assert len(Notebook.closed) == 2


def test_tool_created_after_the_episode_ended_is_closed() -> None:
    began, goes_on, closed = threading.Event(), threading.Event(), threading.Event()

    class Slow:
        """Start slowly."""

        def __init__(self) -> None:
            began.set()
            goes_on.wait(30)

        def __call__(self) -> str:
            return ""

        def close(self) -> None:
            closed.set()

    async def run() -> None:
        environment = ToolEnvironment([Slow], 3)
        reset = asyncio.ensure_future(environment.reset(TASK, seed=0))
        while not began.is_set():
            await asyncio.sleep(0.01)
        reset.cancel()
        with suppress(asyncio.CancelledError):
            await reset
        await environment.close()

    asyncio.run(run())
    goes_on.set()
    assert closed.wait(30)


def test_class_without_call_is_rejected() -> None:
    with pytest.raises(UserError, match="__call__"):
        tool(type("Nothing", (), {"__doc__": "Nothing."}))
