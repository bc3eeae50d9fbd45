"""Tools: functions or stateful objects that a model may call.

    @tool
    def calculator(expression: str) -> str:
        '''Compute an arithmetic expression exactly.'''
        return compute(expression)

    @tool
    class Notebook:
        '''Add a line to the notes and read all of them.'''

        def __init__(self):
            self.lines = []

        def __call__(self, line: str) -> str:
            self.lines.append(line)
            return " / ".join(self.lines)

The model sees the name, the docstring (in Google style, with the text of each parameter in the ``Args`` section) and a
JSON schema generated from the type hints. A class is instantiated for each episode.

Errors belong to one of two groups. *Errors in the model's call* are unknown or ill-typed arguments, a `ToolError`, a
`ValueError` or an `ArithmeticError` of the function, and a timeout. The model sees them in the answer of the tool and
may try again. *Errors in the tool itself* are every other exception, and a result that is not JSON. They raise
`ToolFailure`, and the trajectory is not scored.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, overload

from rlcore.episodes.calls import Deadline, is_async, place_of
from rlcore.episodes.context import EpisodeContext
from rlcore.episodes.threads import TooManyAbandoned, run_in_thread
from rlcore.episodes.tool_schema import check_arguments, parameters_of, schema_of
from rlcore.errors import EnvironmentFailure, SandboxFailure, ToolFailure, UserError
from rlcore.plugin_calls import error_text, is_interrupt
from rlcore.timing import timed
from rlcore.types import FrozenDict, Task, ToolSchema, freeze, thaw
from rlcore.types.checking import flaw_in_numbers, is_finite
from rlcore.types.frozen import has_more_items

MOST_ITEMS = 200_000
"""Items in a value that a tool returns. Writing it as text blocks the other episodes, for a quarter of a second."""


class ToolError(Exception):
    """Raised by a tool when it cannot answer a call. The model reads the message."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer of a tool. ``final`` ends the episode, ``error`` marks a failed call."""

    text: str
    images: tuple[bytes, ...] = field(default=(), kw_only=True)
    """Encoded images, shown to the model after the text."""
    status: Literal["ok", "error", "final"] = field(default="ok", kw_only=True)
    reward: float | None = field(default=None, kw_only=True)
    """The reward of this turn; None if the tool gives no reward."""
    info: Mapping[str, float] = field(default_factory=FrozenDict, kw_only=True)
    """Numbers that become metrics of the trajectory."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "info", freeze(self.info))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function, or a class of stateful objects, with its schema. Calling the tool calls it without checks."""

    function: Callable[..., Any]
    """The function; for a stateful tool the class, and within an episode its object."""
    schema: ToolSchema
    timeout_s: float = 30.0
    max_characters: int = 2048
    """Longer answers are shortened in the middle."""
    wants_task: bool = False
    """Whether it declares a parameter ``task``, which is hidden from the model."""
    wants_context: bool = False
    """Whether it declares a parameter ``context``, which is hidden from the model."""
    stateful: bool = False
    """Whether `function` is a class, which is instantiated for each episode."""
    runs_code: bool = False
    """Whether it runs code in `EpisodeContext.sandbox`; see `rlcore.specs.EnvironmentSpec`."""
    origin: str = ""
    """The plugin that registered it, for messages."""

    @property
    def name(self) -> str:
        """The name that the model uses to call the tool."""
        return self.schema.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function. For a stateful tool, create an object."""
        return self.function(*args, **kwargs)

    async def call(
        self, arguments: Mapping[str, Any], *, task: Task | None = None, context: EpisodeContext | None = None
    ) -> ToolResult:
        """Answer a call of the model.

        Raises:
            ToolFailure: the tool itself failed, not the call.
        """
        if isinstance(self.function, type):
            raise ToolFailure(f"tool {self.name!r} is stateful and can only be called within an episode")
        values, mistakes = check_arguments(self.schema, thaw(arguments))
        if mistakes:
            return ToolResult(f"Error: {self.name}: " + "; ".join(mistakes) + ".", status="error")
        if self.wants_task:
            values["task"] = task
        if self.wants_context:
            values["context"] = context
        try:
            with timed("tool", self.name), Deadline(time.monotonic() + self.timeout_s) as deadline:
                if is_async(self.function):
                    answer = await self.function(**values)
                else:
                    answer = await run_in_thread(self.function, **values)
                    if inspect.isawaitable(answer):
                        answer = await answer
            return self._result(answer)
        except (ToolFailure, SandboxFailure):
            raise
        except (EnvironmentFailure, TooManyAbandoned) as error:
            raise ToolFailure(f"{self.named} failed: {error}") from error
        except asyncio.CancelledError as error:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            raise ToolFailure(f"{self.named} cancelled itself") from error
        except (ToolError, ValueError, ArithmeticError) as error:
            return ToolResult(shorten(f"Error: {_message(error)}", self.max_characters), status="error")
        except BaseException as error:
            if is_interrupt(error):
                raise
            if isinstance(error, TimeoutError) and deadline.expired:
                return ToolResult(f"Error: {self.name} did not answer within {self.timeout_s:g} s.", status="error")
            raise ToolFailure(f"{self.named} failed: {error_text(error)}") from error

    @property
    def named(self) -> str:
        """The tool and its plugin or file, for messages."""
        origin = self.origin or (place_of(self.function) or "").rpartition("/")[2]
        return f"tool {self.name!r}" + (f" ({origin})" if origin else "")

    def _result(self, answer: object) -> ToolResult:
        if isinstance(answer, ToolResult):
            if flaw := _flaw(answer):
                raise ToolFailure(f"{self.named} returned a ToolResult with {flaw}")
            text = shorten(answer.text, self.max_characters)
            return ToolResult(text, images=answer.images, status=answer.status, reward=answer.reward, info=answer.info)
        if not isinstance(answer, str):
            if has_more_items(answer, MOST_ITEMS):
                raise ToolFailure(f"{self.named} returned a value with more than {MOST_ITEMS:,} items")
            try:
                answer = json.dumps(thaw(answer), ensure_ascii=False)
            except (TypeError, ValueError, RecursionError) as error:
                raise ToolFailure(
                    f"{self.named} returned {type(answer).__name__}, which is neither text, ToolResult nor JSON: "
                    f"{error_text(error)}"
                ) from error
        return ToolResult(shorten(answer, self.max_characters))


def _message(error: BaseException) -> str:
    """The message of an error of a call, for the model."""
    text = error_text(error)
    return text.removeprefix(f"{type(error).__name__}: ")


def _flaw(result: ToolResult) -> str | None:
    """What is wrong with the fields of a result; None when they are valid."""
    if not isinstance(result.text, str):
        return f"text of type {type(result.text).__name__}"
    if not isinstance(result.images, (list, tuple)) or not all(isinstance(image, bytes) for image in result.images):
        return "images that are not bytes"
    if result.status not in ("ok", "error", "final"):
        return "an unknown status"
    if result.reward is not None and not is_finite(result.reward):
        return "a reward that is not a finite number"
    return flaw_in_numbers(result.info, "info")


@overload
def tool(function: Callable[..., Any] | Tool, /) -> Tool: ...


@overload
def tool(
    *, name: str | None = None, timeout_s: float = 30.0, max_characters: int = 2048, runs_code: bool = False
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | Tool | None = None,
    /,
    *,
    name: str | None = None,
    timeout_s: float = 30.0,
    max_characters: int = 2048,
    runs_code: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Create a tool from a function or a class, as a decorator with or without arguments.

    A `Tool` is returned unchanged. A tool made from a class is named after it, in snake case. An object is created for
    each episode: its constructor may declare ``context``, ``__call__`` answers the calls, and ``close``, if present, is
    called at the end.

    Raises:
        UserError: a type hint has no JSON schema (the message names the parameter), or the docstring is missing.
    """
    if isinstance(function, Tool):
        return function
    if timeout_s <= 0 or max_characters < 64:
        raise UserError(
            "timeout_s must be positive, and max_characters at least 64",
            found=f"timeout_s={timeout_s:g}, max_characters={max_characters}",
        )

    def make(function: Callable[..., Any]) -> Tool:
        schema = schema_of(function, name=name)
        names = {parameter.name for parameter in parameters_of(function)}
        return Tool(
            function=function,
            schema=schema,
            timeout_s=timeout_s,
            max_characters=max_characters,
            wants_task="task" in names,
            wants_context="context" in names,
            stateful=isinstance(function, type),
            runs_code=runs_code,
        )

    return make if function is None else make(function)


def shorten(text: str, max_characters: int) -> str:
    """Return the text, or its beginning and end around a note of its length. Never exceeds the limit."""
    if len(text) <= max_characters:
        return text
    mark = f"\n[... middle omitted, {len(text)} characters in total ...]\n"
    room = max(max_characters - len(mark), 0)
    tail = room // 2
    return (text[: room - tail] + mark + text[len(text) - tail :])[:max_characters]
