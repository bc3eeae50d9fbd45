"""The sandbox session of an episode: opened at its first use, checked, and used by one caller at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rlcore.contracts import SandboxSession
from rlcore.episodes.calls import describe
from rlcore.errors import SandboxFailure
from rlcore.plugin_calls import value_text
from rlcore.timing import timed
from rlcore.types import CodeResult
from rlcore.types.checking import flaw_in_code_result

OpenSession = Callable[[Sequence[bytes]], Awaitable[SandboxSession]]
"""Starts a session with these images, as `rlcore.contracts.Sandbox.open`."""


class EpisodeSession:
    """A session that is open, around that of a backend. Every failure of the backend is a `SandboxFailure`.

    Cells of concurrent callers, such as tools that are called in one turn, run one after the other.
    """

    def __init__(self, session: SandboxSession) -> None:
        self._session = session
        self._turn = asyncio.Lock()
        self._closed = False

    async def run(self, code: str) -> CodeResult:
        """Run a cell; as `SandboxSession.run`."""
        if not isinstance(code, str):
            raise TypeError(f"code must be text, found {value_text(code)}")
        async with self._turn:
            if self._closed:
                raise SandboxFailure("the sandbox session of the episode is closed")
            with timed("cell"):
                result = await _contained("run", self._session.run, code)
        if not isinstance(result, CodeResult):
            raise SandboxFailure(f"run of the sandbox must return a CodeResult, it returned {value_text(result)}")
        if flaw := flaw_in_code_result(result):
            raise SandboxFailure(f"run of the sandbox returned a CodeResult with {flaw}")
        return result

    async def close(self) -> None:
        """Close the session, without waiting for a running cell. A second call does nothing."""
        if not self._closed:
            self._closed = True
            await _contained("close", self._session.close)


async def open_session(open_one: OpenSession, images: Sequence[bytes]) -> EpisodeSession:
    """Start a session.

    Raises:
        SandboxFailure: it cannot be started.
    """
    session = await _contained("open", open_one, images)
    if not isinstance(session, SandboxSession):
        raise SandboxFailure(f"open of the sandbox must return a session, it returned {value_text(session)}")
    return EpisodeSession(session)


async def _contained(name: str, method: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """The answer of a backend, whose errors become `SandboxFailure`."""
    try:
        return await method(*arguments)
    except (SandboxFailure, asyncio.CancelledError):
        raise
    except Exception as error:
        raise SandboxFailure(f"{name} of the sandbox raised {describe(error, method)}") from error


__all__ = ["EpisodeSession", "OpenSession", "open_session"]
