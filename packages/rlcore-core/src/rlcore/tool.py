"""Tools: functions that a model may call.

    @tool
    def calculator(expression: str) -> str:
        '''Compute an arithmetic expression exactly.'''
        return compute(expression)

The model sees the name, the docstring (each parameter's text stands in its ``Args`` section, in Google's style) and a
JSON schema made of the type hints. What goes wrong belongs to one of two
sides. *The model's call*: unknown or ill-typed arguments, a `ToolError`, a `ValueError` or an `ArithmeticError` of the
function (what it was given has no result), a timeout. The model reads about it as the tool's answer and may try again.
*The tool itself*: every other exception, and a result that is not JSON. It raises `EnvironmentFailure`, and the
trajectory is not scored: the model is neither blamed for a dead backend nor rewarded despite it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, overload

from rlcore.errors import EnvironmentFailure, UserError
from rlcore.threads import run_in_thread
from rlcore.tool_schema import check_arguments, schema_of
from rlcore.types import Task, ToolSchema, thaw


class ToolError(Exception):
    """What a tool raises for the model to read: the call cannot be answered, and why."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answers. ``final`` ends the episode, ``error`` tells the model that its call failed."""

    text: str
    images: tuple[bytes, ...] = field(default=(), kw_only=True)
    status: Literal["ok", "error", "final"] = field(default="ok", kw_only=True)
    reward: float | None = field(default=None, kw_only=True)
    """The reward of this step, where the tool knows one."""
    info: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), kw_only=True)
    """Numbers that become metrics of the trajectory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function with what a model must know to call it. Calling the object calls the function, unchecked."""

    function: Callable[..., Any]
    schema: ToolSchema
    timeout_s: float = 30.0
    max_characters: int = 2048
    """Longer answers lose their middle."""
    wants_task: bool = False
    """The function has a parameter ``task``, which the model is not shown."""

    @property
    def name(self) -> str:
        """How the model calls it."""
        return self.schema.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself."""
        return self.function(*args, **kwargs)

    async def call(self, arguments: Mapping[str, Any], *, task: Task | None = None) -> ToolResult:
        """Answer a model's call. Raises `EnvironmentFailure` where the tool, not the call, failed."""
        values, mistakes = check_arguments(self.schema, thaw(arguments))
        if mistakes:
            return ToolResult(f"Error: {self.name}: " + "; ".join(mistakes) + ".", status="error")
        if self.wants_task:
            values["task"] = task
        try:
            async with asyncio.timeout(self.timeout_s) as deadline:
                if inspect.iscoroutinefunction(self.function):
                    answer = await self.function(**values)
                else:
                    answer = await run_in_thread(self.function, **values)
                    if inspect.isawaitable(answer):
                        answer = await answer
        except EnvironmentFailure:
            raise
        except (ToolError, ValueError, ArithmeticError) as error:
            return ToolResult(shorten(f"Error: {error or type(error).__name__}", self.max_characters), status="error")
        except Exception as error:
            if isinstance(error, TimeoutError) and deadline.expired():
                return ToolResult(f"Error: {self.name} gave no answer within {self.timeout_s:g} s.", status="error")
            raise EnvironmentFailure(f"tool {self.name!r} failed: {type(error).__name__}: {error}") from error
        return self._result(answer)

    def _result(self, answer: object) -> ToolResult:
        if isinstance(answer, ToolResult):
            text = shorten(answer.text, self.max_characters)
            return ToolResult(text, images=answer.images, status=answer.status, reward=answer.reward, info=answer.info)
        if not isinstance(answer, str):
            try:
                answer = json.dumps(thaw(answer), ensure_ascii=False)
            except (TypeError, ValueError) as error:
                raise EnvironmentFailure(
                    f"tool {self.name!r} returned {type(answer).__name__}, which is neither text, ToolResult nor JSON: "
                    f"{error}"
                ) from error
        return ToolResult(shorten(answer, self.max_characters))


@overload
def tool(function: Callable[..., Any] | Tool, /) -> Tool: ...


@overload
def tool(
    *, name: str | None = None, timeout_s: float = 30.0, max_characters: int = 2048
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | Tool | None = None,
    /,
    *,
    name: str | None = None,
    timeout_s: float = 30.0,
    max_characters: int = 2048,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, as a decorator with or without arguments. A `Tool` is returned as it is.

    Raises `UserError`, naming the parameter, where a type hint has no JSON schema or the docstring is missing.
    """
    if isinstance(function, Tool):
        return function
    if timeout_s <= 0 or max_characters < 64:
        raise UserError(
            "a tool needs a positive timeout_s and at least 64 max_characters",
            found=f"timeout_s={timeout_s:g}, max_characters={max_characters}",
        )

    def make(function: Callable[..., Any]) -> Tool:
        schema = schema_of(function, name=name)
        wants_task = "task" in inspect.signature(function).parameters
        return Tool(
            function=function,
            schema=schema,
            timeout_s=timeout_s,
            max_characters=max_characters,
            wants_task=wants_task,
        )

    return make if function is None else make(function)


def shorten(text: str, max_characters: int) -> str:
    """The text, or its beginning and its end around a mark that says how much is missing; never longer."""
    if len(text) <= max_characters:
        return text
    mark = f"\n[... {len(text)} characters in all, the middle is left out ...]\n"
    room = max(max_characters - len(mark), 0)
    tail = room // 2
    return (text[: room - tail] + mark + text[len(text) - tail :])[:max_characters]
