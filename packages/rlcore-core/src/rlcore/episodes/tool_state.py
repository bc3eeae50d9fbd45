"""Stateful tools, whose objects are created at the start of an episode and closed at its end."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, runtime_checkable

from rlcore.episodes.calls import is_async
from rlcore.episodes.context import EpisodeContext, takes_context
from rlcore.episodes.threads import run_as, run_in_thread
from rlcore.episodes.tool import Tool
from rlcore.errors import ToolFailure
from rlcore.plugin_calls import error_text, is_interrupt


@runtime_checkable
class Closable(Protocol):
    """A tool that must release resources at the end of the episode. ``close`` may be plain or ``async``."""

    def close(self) -> object:
        """Release the tool's resources. Called once."""
        ...


class EpisodeTools:
    """The tools of one episode by name. `close` ends what `start` created, even while `start` is still running."""

    def __init__(self) -> None:
        self.by_name: dict[str, Tool] = {}
        self._open: list[tuple[str, object]] = []
        self._closed = False
        self._lock = threading.Lock()

    async def start(self, tools: Iterable[Tool], context: EpisodeContext) -> None:
        """Create an object of each tool that is a class. Functions are used unchanged.

        Raises:
            ToolFailure: a constructor raised.
        """
        for tool in tools:
            self.by_name[tool.name] = tool
            if tool.stateful:
                try:
                    made = await run_as(tool.function, partial(self._make, tool, context))
                except Exception as error:
                    raise ToolFailure(f"{tool.named} cannot be created: {error_text(error)}") from error
                self.by_name[tool.name] = dataclasses.replace(tool, function=made)

    def _make(self, tool: Tool, context: EpisodeContext) -> Callable[..., Any]:
        declared = {"context": context} if takes_context(tool.function) else {}
        made: Callable[..., Any] = tool.function(**declared)
        with self._lock:
            if not self._closed:
                self._open.append((tool.name, made))
                return made
        # The episode was cancelled while the constructor ran. A coroutine has no event loop here.
        if isinstance(made, Closable) and not is_async(made.close):
            made.close()
        return made

    async def close(self) -> None:
        """Close every object, in reverse order. A second call does nothing.

        Raises:
            ToolFailure: an object cannot be closed. The others are closed anyway.
        """
        with self._lock:
            self._closed = True
            made, self._open = self._open, []
        failures = []
        for name, one in reversed(made):
            if isinstance(one, Closable):
                try:
                    ended = one.close() if is_async(one.close) else await run_in_thread(one.close)
                    if inspect.isawaitable(ended):
                        await ended
                except asyncio.CancelledError:
                    raise
                except BaseException as error:
                    if is_interrupt(error):
                        raise
                    failures.append(f"tool {name!r} cannot be closed: {error_text(error)}")
        if failures:
            raise ToolFailure("; ".join(failures))
