"""The sandbox ``served``: sessions of the sandbox of another machine, which ``rlcore serve sandbox`` offers there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

from pydantic import Field
from rlcore.config.schema import Address, Table
from rlcore.errors import DataError, EnvironmentFailure, SandboxFailure, UserError
from rlcore.images.encoding import check_image
from rlcore.json_files import parse_answer
from rlcore.transport.hosting import WAIT_S
from rlcore.transport.remote import NoPlace, Unavailable
from rlcore.transport.served import ServedObject, Servers
from rlcore.transport.typed import received
from rlcore.types import CodeResult, SandboxLimits, SandboxSupport

from rlcore_sandbox.results import check_pictures, checked_text

SERVER_S = 60.0
"""Time in which a server must be reachable for a new session."""
PLACE_S = 3600.0
"""Time in which a server must have a place for it. The time limits of the episode are shorter."""
OVERHEAD_S = 30.0
"""Time for the start of a session, in addition to that of its cell."""


class ServedSandboxConfig(Table):
    """The servers."""

    servers: Annotated[list[Address], Field(min_length=1)]
    """Servers that run the code, such as ``sandboxes:7072``, started with ``rlcore serve sandbox``. Sessions are given
    to them in turn."""


class ServedSandbox:
    """A `rlcore.contracts.Sandbox` on servers."""

    def __init__(self, config: ServedSandboxConfig, limits: SandboxLimits) -> None:
        self.limits = limits
        self._servers = Servers(config.servers, None, "sandbox")
        self._sessions: set[ServedSession] = set()
        self._closed = False

    async def open(self, images: Sequence[bytes]) -> ServedSession:
        """Start a session; see `rlcore.contracts.Sandbox`."""
        try:
            for image in images:
                await asyncio.to_thread(check_image, image)
        except DataError as error:
            raise SandboxFailure(f"an image of the session cannot be read: {error.message}") from error
        session = ServedSession(self, list(images))
        await session.start()
        self._sessions.add(session)
        return session

    async def close(self) -> None:
        """End all sessions. A second call does nothing."""
        self._closed = True
        for session in list(self._sessions):
            await session.close()

    def forget(self, session: ServedSession) -> None:
        """Called by a session that is closed."""
        self._sessions.discard(session)

    async def started(self, images: list[bytes]) -> ServedObject:
        """A connection with a new session. Waits until a server has a place.

        Raises:
            SandboxFailure: no server has one in time, or a session cannot be started.
        """
        began, losses = time.monotonic(), 0
        until = began + SERVER_S
        while True:
            served = None
            try:
                served = await asyncio.to_thread(self._servers)
                if reason := other_limits(served, self.limits):
                    raise SandboxFailure(reason)
                await asyncio.to_thread(served.ask, "open", images=images, timeout_s=OVERHEAD_S)
                return served
            except (EnvironmentFailure, UserError) as error:
                lost = isinstance(error, EnvironmentFailure) and (served is None or not served.usable)
                losses += not isinstance(error, Unavailable)
                if served is not None:
                    served.close()
                if isinstance(error, NoPlace):
                    until = min(began + PLACE_S, time.monotonic() + SERVER_S)
                if not lost or losses > 1 or time.monotonic() >= until or self._closed:
                    raise SandboxFailure(f"no session can be started: {error}") from None
            await asyncio.sleep(WAIT_S)


class ServedSession:
    """A `rlcore.contracts.SandboxSession` on a server.

    A session that has not run a cell yet is started again on another server if its own is lost. Later the names of its
    cells are lost, too, so that the episode fails. A cell is sent at most twice: it may be what ends the servers.
    """

    def __init__(self, sandbox: ServedSandbox, images: list[bytes]) -> None:
        self._sandbox, self._images = sandbox, images
        self._served: ServedObject | None = None
        self._fresh = True
        """Whether no cell has run."""
        self._turn = asyncio.Lock()
        self._lost = self._closed = False

    async def start(self) -> None:
        """Start it on a server. Raises `SandboxFailure`."""
        self._served = await self._sandbox.started(self._images)
        self._fresh = True

    async def run(self, code: str) -> CodeResult:
        """Run a cell; see `rlcore.contracts.SandboxSession`."""
        async with self._turn:
            if self._closed:
                raise SandboxFailure("the session of the sandbox is closed")
            if self._served is None:
                await self.start()
            try:
                result = await self._result(code)
            except asyncio.CancelledError:
                self._end()  # the server kills the code
                self._lost = True
                raise
            self._fresh = False
            lost, self._lost = self._lost, False
            return replace(result, reset=result.reset or lost)

    async def _result(self, code: str) -> CodeResult:
        losses = 0
        while True:
            served = self._served
            assert served is not None
            try:
                answer = await asyncio.to_thread(self._asked, served, code)
                return await asyncio.to_thread(checked_result, answer, self._sandbox.limits)
            except EnvironmentFailure as error:
                lost = not served.usable
                self._end()
                losses += not isinstance(error, Unavailable)
                if not lost or losses > 1 or not self._fresh or self._closed:
                    raise SandboxFailure(f"the session of the sandbox is lost: {error}") from None
                await self.start()

    def _asked(self, served: ServedObject, code: str) -> Any:
        text = code.encode("utf-8", "replace").decode("utf-8")
        return served.ask("run", code=text, timeout_s=self._sandbox.limits.cell_s + OVERHEAD_S)

    async def close(self) -> None:
        """End the session, and what it started. A second call does nothing."""
        self._closed = True
        self._sandbox.forget(self)
        self._end()

    def _end(self) -> None:
        served, self._served = self._served, None
        if served is not None:
            served.kill()  # also during a call, which keeps its descriptor


def checked_result(answer: Any, limits: SandboxLimits) -> CodeResult:
    """The result of a cell that a server has sent.

    Raises:
        SandboxFailure: it is none.
    """
    try:
        found = received(CodeResult, answer)
        if len(found.images) > limits.images:
            raise ValueError(f"{len(found.images)} images, the limit is {limits.images}")
        check_pictures(found.images, limits.image_pixels)
        return replace(
            found,
            stdout=checked_text(found.stdout, limits),
            stderr=checked_text(found.stderr, limits),
            value=checked_text(found.value, limits),
            error=checked_text(found.error, limits),
        )
    except (ValueError, DataError) as error:
        raise SandboxFailure(f"the server of the sandbox sent no result: {str(error)[:200]}") from None


def other_limits(served: ServedObject, limits: SandboxLimits) -> str:
    """How the limits of a server differ from those of the run; empty if they do not."""
    try:
        theirs = parse_answer(str(served.greeting.get("limits")).encode())
    except ValueError:
        theirs = None
    if not isinstance(theirs, dict):
        return "the server sent no limits"
    found = [
        f"{name} is {value} here and {theirs.get(name)!r:.40} on the server"
        for name, value in asdict(limits).items()
        if theirs.get(name) != value
    ]
    return f"the limits of sessions differ: {'; '.join(found)}" if found else ""


def available(config: ServedSandboxConfig, limits: SandboxLimits) -> SandboxSupport:
    """Connect to each server."""
    lines = []
    for address in config.servers:
        try:
            with ServedObject(address, None, "sandbox") as served:
                reason = other_limits(served, limits)
                lines.append(f"{address}: {served.greeting.get('line')}")
        except (EnvironmentFailure, UserError) as error:
            fix = "start rlcore serve sandbox there with the same token, and the tunnel to it"
            return SandboxSupport(reason=str(error), fix=fix)
        if reason:
            fix = "give rlcore serve sandbox the limits of the run, or set those of the server in [sandbox]"
            return SandboxSupport(reason=f"{address}: {reason}", fix=fix)
    return SandboxSupport(guarantees=tuple(lines))


__all__ = ["ServedSandbox", "ServedSandboxConfig", "available"]
