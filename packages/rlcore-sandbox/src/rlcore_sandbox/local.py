"""Sandboxes on this machine: sessions that are forked from a zygote and confined by a backend of `isolation`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any, Literal

from rlcore.errors import DataError, SandboxFailure
from rlcore.types import CodeResult, SandboxLimits

from rlcore_sandbox.process import Ended, SessionProcess
from rlcore_sandbox.results import check_pictures, reply_fields
from rlcore_sandbox.starting import ZygoteProcess


class LocalSandbox:
    """A `rlcore.contracts.Sandbox` with processes on this machine. The first session starts the zygote.

    Args:
        backend: of `isolation`
        limits: of each session
    """

    def __init__(self, backend: str, limits: SandboxLimits) -> None:
        self._backend, self._limits = backend, limits
        self._lock = threading.Lock()
        self._zygote: ZygoteProcess | None = None
        self._sessions: set[LocalSession] = set()
        self._closed = False

    async def open(self, images: Sequence[bytes] = ()) -> LocalSession:
        """Start a session; see `rlcore.contracts.Sandbox`."""
        session = LocalSession(self, tuple(images), self._limits)
        await session.start()
        self._sessions.add(session)
        return session

    async def close(self) -> None:
        """Kill all sessions and end the zygote. A second call does nothing."""
        for session in list(self._sessions):
            await session.close()
        await asyncio.to_thread(self._close)

    def forget(self, session: LocalSession) -> None:
        """Called by a session that is closed."""
        self._sessions.discard(session)

    async def zygote(self) -> ZygoteProcess:
        """The running zygote. One that has ended is replaced."""
        if (zygote := self._zygote) is not None and zygote.alive:
            return zygote
        return await asyncio.to_thread(self._start)

    def _start(self) -> ZygoteProcess:
        with self._lock:
            if self._closed:
                raise SandboxFailure("the sandbox is closed")
            if self._zygote is not None and not self._zygote.alive:
                self._zygote.close()
                self._zygote = None
            if self._zygote is None:
                self._zygote = ZygoteProcess(self._backend, self._limits)
            return self._zygote

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()


class LocalSession:
    """A `rlcore.contracts.SandboxSession`. Replaces its process when that has ended."""

    def __init__(self, sandbox: LocalSandbox, images: tuple[bytes, ...], limits: SandboxLimits) -> None:
        self._sandbox, self._images, self._limits = sandbox, images, limits
        self._process: SessionProcess | None = None
        self._next_image = len(images)
        self._requests = 0
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._lost = self._closed = False
        """Whether the state was lost since the last result."""

    async def start(self) -> None:
        """Start the process with the initial images.

        Raises:
            SandboxFailure: it does not start.
        """
        if not await self._started():  # the zygote has ended this moment
            await self._started(last=True)

    async def _started(self, *, last: bool = False) -> bool:
        """Start the process. False if its zygote has ended, unless this is the last attempt."""
        zygote = await self._sandbox.zygote()
        try:
            process = SessionProcess(zygote, self._limits)
        except SandboxFailure:
            if last:
                raise
            return False
        try:
            await process.start(self._images)
        except BaseException as error:
            await process.close()
            if last or not (isinstance(error, SandboxFailure) and process.zygote_ended):
                raise
            zygote.lose()
            return False
        self._process = process
        return True

    async def run(self, code: str) -> CodeResult:
        """Run a cell; see `rlcore.contracts.SandboxSession`. Images are numbered on after a restart.

        Concurrent calls run one after the other. All of them belong to the event loop in which the session was opened.

        Raises:
            SandboxFailure: also if it is called in another event loop, such as that of another thread.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise SandboxFailure(
                "a session of the sandbox runs cells in the event loop that opened it, found a call in another one; "
                "open a session in each thread, or use asyncio.run_coroutine_threadsafe with the loop of this one"
            )
        async with self._turn:
            return await self._run(code)

    async def _run(self, code: str) -> CodeResult:
        if self._closed:
            raise SandboxFailure("the session of the sandbox is closed")
        process = await self._running()
        self._requests += 1
        start = time.perf_counter()
        request = {"id": self._requests, "code": code, "first": self._next_image}
        fields: dict[str, Any]
        images: Sequence[bytes] = ()
        try:
            message, images = await process.run(request)
            fields = reply_fields(message, self._limits)
            if message.get("left") is True:
                fields["reset"] = True
            if images:
                await asyncio.to_thread(check_pictures, images, self._limits.image_pixels)
        except Ended as ended:
            images = ()
            status: Literal["timeout", "killed"] = "timeout" if ended.limit else "killed"
            fields = {"status": status, "error": str(ended), "reset": True}
        except (DataError, ValueError):
            images = ()
            await process.kill("The code sent a damaged result.")
            fields = {"status": "killed", "error": "The code damaged its session, which was stopped.", "reset": True}
        stdout, stderr = process.output()
        if fields.get("reset"):
            self._process = None
            await process.close()
        names = tuple(f"image_clue_{self._next_image + index}" for index in range(len(images)))
        self._next_image += len(images)
        lost, self._lost = self._lost, False
        return CodeResult(
            stdout=stdout,
            stderr=stderr,
            images=tuple(images),
            image_names=names,
            seconds=time.perf_counter() - start,
            **{"reset": lost, **fields},
        )

    async def close(self) -> None:
        """Kill everything that the session started. A second call does nothing."""
        self._closed = True
        self._sandbox.forget(self)
        process, self._process = self._process, None
        if process is not None:
            await process.close()

    async def _running(self) -> SessionProcess:
        """The process, or a new one if it has ended."""
        if self._process is not None and self._process.ended:
            ended, self._process = self._process, None
            self._lost = True
            await ended.close()
            ended.check_zygote()
        if self._process is None:
            await self.start()
        assert self._process is not None
        return self._process


class NamespacesSandbox(LocalSandbox):
    """Each session has namespaces of its own."""

    def __init__(self, config: object, limits: SandboxLimits) -> None:
        super().__init__("namespaces", limits)


class BubblewrapSandbox(LocalSandbox):
    """All sessions share the namespaces that bubblewrap creates."""

    def __init__(self, config: object, limits: SandboxLimits) -> None:
        super().__init__("bubblewrap", limits)


class LandlockSandbox(LocalSandbox):
    """Sessions without namespaces."""

    def __init__(self, config: object, limits: SandboxLimits) -> None:
        super().__init__("landlock", limits)


__all__ = ["BubblewrapSandbox", "LandlockSandbox", "LocalSandbox", "LocalSession", "NamespacesSandbox"]
