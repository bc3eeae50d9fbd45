"""The environment, its tool and its reward."""

from __future__ import annotations

from typing import Literal

from rlcore import Message, Table, Task, ToolCall, ToolEnvironment, ToolError, Trajectory, tool


class WarehouseConfig(Table):
    """``[environment]``."""

    tools: list[str] = ["look-up"]
    """Ids of tools. An empty list removes the lookup tool."""
    max_turns: int = 2
    """Maximum number of model turns: one lookup and one answer."""


class Warehouse(ToolEnvironment):
    """Shows the question, runs tool calls and ends at the first message without one."""

    def __init__(self, config: WarehouseConfig) -> None:
        super().__init__(config.tools, config.max_turns)

    def oracle(self, task: Task) -> list[Message]:
        """A perfect solution, which the conformance tests require."""
        return [call_of(task.fields["article"], task.fields["about"]), answer_of(task.fields["answer"])]


@tool
def look_up(article: int, about: Literal["price", "stock", "weight", "shelf"], task: Task) -> int:
    """Look an article up in the list.

    Args:
        article: Its number.
        about: The attribute to return.
        task: The current task. It is not part of the schema that the model sees.
    """
    if article != task.fields["article"]:
        raise ToolError(f"there is no article {article}")
    return task.fields["list"][about]


def right_answer(trajectory: Trajectory, task: Task) -> float:
    """1 if the last message is the number in the list, else 0."""
    return float(trajectory.final_response.strip() == str(task.fields["answer"]))


def call_of(article: int, about: str) -> Message:
    """An assistant message with a tool call."""
    call = ToolCall(name=look_up.name, arguments={"article": article, "about": about}, id="call")
    return Message(role="assistant", tool_calls=(call,))


def answer_of(number: int) -> Message:
    """An assistant message with the answer."""
    return Message(role="assistant", content=str(number))
