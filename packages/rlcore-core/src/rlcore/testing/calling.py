"""Calls plugins like the agent loop does: sync or async, in threads where required, with a deadline."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from rlcore.episodes.threads import run_in_thread

DEADLINE_S = 30.0


async def call(function: Callable[..., Any], *arguments: Any, threaded: bool = False, **keywords: Any) -> Any:
    """Return the result, awaited if it is awaitable. Raises `TimeoutError` after `DEADLINE_S`."""
    async with asyncio.timeout(DEADLINE_S):
        if threaded and not inspect.iscoroutinefunction(function):
            answer = await run_in_thread(function, *arguments, **keywords)
        else:
            answer = function(*arguments, **keywords)
        return await answer if inspect.isawaitable(answer) else answer


class Findings:
    """Collects contract violations, so that an author sees all of them at once."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._sentences: list[str] = []

    def expect(self, kept: bool, sentence: str) -> bool:
        """Record the sentence if the expectation is not met. Returns ``kept``."""
        if not kept and sentence not in self._sentences:
            self._sentences.append(sentence)
        return kept

    async def attempt(self, what: str, check: Any) -> None:
        """Await a check. Any exception that it raises is recorded as a violation."""
        try:
            await check
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except TimeoutError:
            self.expect(False, f"{what}: no answer within {DEADLINE_S:g} s")
        except Exception as error:
            self.expect(False, f"{what}: {type(error).__name__}: {error}")

    def conclude(self) -> None:
        """Raise one `AssertionError` with all sentences if there are any."""
        if self._sentences:
            raise AssertionError(
                "\n".join([f"{self._subject} breaks the contract:", *map("  - {}".format, self._sentences)])
            )
