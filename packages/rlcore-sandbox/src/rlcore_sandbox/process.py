"""One process of a session, as the host sees it: its connection, its output, and its end.

Everything that it sends is hostile: lengths are limited, nothing is unpickled, and whatever breaks the protocol ends
the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from typing import Any

from rlcore.errors import SandboxFailure
from rlcore.types import SandboxLimits

from rlcore_sandbox.inside.frames import BrokenFrame, Decoder, encode
from rlcore_sandbox.inside.output import MOST_BYTES, Output
from rlcore_sandbox.inside.session import BROKEN_STATUS, FULL_STATUS
from rlcore_sandbox.isolation.limits import FILES_STATUS, MEMORY_STATUS
from rlcore_sandbox.starting import ZygoteProcess

CHUNK = 65_536
START_S, KILL_S = 60.0, 10.0
CLOSED_S = 0.5
"""Time between the end of a connection and the report that the process has ended."""
BROKEN = "The code closed the connection of its session, or wrote to it."
BYTES_OF_ESCAPE = 12
"""The longest escape of a character in JSON."""

Message = tuple[dict[str, Any], list[bytes]]


class Ended(Exception):
    """The process has ended, or was killed because it broke a rule. The message is for the code's author."""

    def __init__(self, reason: str, *, limit: bool = False) -> None:
        super().__init__(reason)
        self.limit = limit
        """Whether it reached a time limit."""


class SessionProcess:
    """A forked process with its sockets and pipes, in the event loop that created it."""

    def __init__(self, zygote: ZygoteProcess, limits: SandboxLimits) -> None:
        self._zygote, self._limits = zygote, limits
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder(
            longest_text=BYTES_OF_ESCAPE * 3 * (limits.output_characters + 1000),
            longest_image=4 * limits.image_pixels + 2**20,
            most_images=limits.images,
        )
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            try:
                self._connection, connection = socket.socketpair()
                ours.callback(self._connection.close)
                theirs.callback(connection.close)
                sent = [connection.fileno()]
                pipes = []
                for _ in range(3):
                    reading, writing = os.pipe()
                    ours.callback(os.close, reading)
                    theirs.callback(os.close, writing)
                    sent.append(writing)
                    pipes.append(reading)
            except OSError as error:
                fix = "raise the limit of open files (ulimit -n), or lower rollout.concurrency"
                raise SandboxFailure(f"a session of the sandbox cannot be connected: {error}; {fix}") from None
            self._stdout, self._stderr, self._report = pipes
            self._name = zygote.open(sent)
            self._descriptors = ours.pop_all()
        self._outputs = {self._stdout: self._new_output(), self._stderr: self._new_output()}
        self._reply: asyncio.Future[Message] | None = None
        self._broken = False
        """Whether the connection is closed, or damaged."""
        self._reason = ""
        """Why it was killed; empty if it was not."""
        self._ended: asyncio.Future[str] = self._loop.create_future()
        """The report of its end."""
        self._connection.setblocking(False)
        self._loop.add_reader(self._connection, self._receive)
        for descriptor, ready in ((self._stdout, self._read), (self._stderr, self._read), (self._report, self._end)):
            os.set_blocking(descriptor, False)
            self._loop.add_reader(descriptor, ready, descriptor)

    @property
    def ended(self) -> bool:
        """Whether it can no longer be used."""
        return self._ended.done() or bool(self._reason)

    def check_zygote(self) -> None:
        """Check why it has ended.

        Raises:
            SandboxFailure: because the zygote has ended.
        """
        if self.zygote_ended:
            raise _zygote_ended()

    @property
    def zygote_ended(self) -> bool:
        """Whether it has ended with its zygote, which therefore did not report its end."""
        return self._ended.done() and not self._ended.result()

    async def start(self, images: Sequence[bytes]) -> None:
        """Send the initial images, and wait until it is ready.

        Raises:
            SandboxFailure: it does not start. No code has run in it, so this is not the code's fault.
        """
        try:
            message, _ = await self._ask(encode({}, images), START_S)
        except (Ended, TimeoutError) as error:
            reason = str(error) or f"it was not ready after {START_S:g} s"
            raise SandboxFailure(f"a session of the sandbox did not start: {reason}{self._zygote.log()}") from None
        if message.get("ready") is not True:
            raise SandboxFailure(f"a session of the sandbox did not start: {next(iter(message.values()), '')}")

    async def run(self, request: dict[str, Any]) -> Message:
        """Run a cell, and return the reply to this request.

        Raises:
            Ended: the process ended, reached a time limit or broke the protocol. It is gone.
        """
        for descriptor in self._outputs:
            self._read(descriptor)
            self._outputs[descriptor] = self._new_output()
        try:
            message, images = await self._ask(encode(request), self._limits.cell_s)
        except TimeoutError:
            reason = f"The code ran longer than {self._limits.cell_s:g} s and was stopped."
            await self.kill(reason)
            raise Ended(reason, limit=True) from None
        except asyncio.CancelledError:
            self._kill("The call was cancelled.")
            raise
        except Ended:
            self._drain()
            raise
        if message.get("id") != request["id"]:
            await self.kill(BROKEN)
            raise Ended(self._reason)
        self._drain()
        return message, images

    def output(self) -> tuple[str, str]:
        """What the cell wrote to stdout and stderr."""
        return self._outputs[self._stdout].text(), self._outputs[self._stderr].text()

    async def kill(self, reason: str) -> None:
        """Kill it with all its processes, and wait until they are gone."""
        self._kill(reason)
        await asyncio.wait([self._ended], timeout=KILL_S)
        self._drain()

    async def close(self) -> None:
        """Kill it, and free its resources. A second call does nothing."""
        if self._connection.fileno() < 0:
            return
        try:
            await self.kill("The session was closed.")
        finally:
            self._close_descriptors()

    async def _ask(self, data: bytes, timeout_s: float) -> Message:
        if self._ended.done():
            raise self._why_ended()
        reply: asyncio.Future[Message] = self._loop.create_future()
        self._reply = reply
        sending = self._send(data)
        try:
            await asyncio.wait([reply], timeout=timeout_s)
            if not reply.done():
                self._receive()  # what arrived while the event loop was busy is in time
            if not reply.done():
                raise TimeoutError
            return reply.result()
        finally:
            self._reply = None
            if sending is not None:
                sending.cancel()

    def _send(self, data: bytes) -> asyncio.Task[None] | None:
        """Send at once what fits; the task sends the rest. A connection that is closed is noticed when it is read."""
        try:
            sent = self._connection.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return None
        if sent == len(data):
            return None

        async def send_rest() -> None:
            with contextlib.suppress(OSError):
                await self._loop.sock_sendall(self._connection, memoryview(data)[sent:])

        return self._loop.create_task(send_rest())

    def _why_ended(self) -> Ended | SandboxFailure:
        report = self._ended.result()
        if not report:
            return _zygote_ended()
        return Ended(self._reason) if self._reason else _explained(report, self._limits)

    def _receive(self) -> None:
        """Read once from the connection. Nothing is read after a broken frame."""
        if self._broken:
            return
        try:
            data = self._connection.recv(CHUNK * 4)
            messages = list(self._decoder.feed(data))
        except BlockingIOError:
            return
        except (OSError, BrokenFrame) as error:
            data, messages = b"", []
            if isinstance(error, BrokenFrame):
                self._kill(BROKEN)
        if not data:
            self._broken = True
            self._loop.remove_reader(self._connection)
            self._loop.call_later(CLOSED_S, self._kill, BROKEN)
        for message in messages:
            if self._reply is not None and not self._reply.done():
                self._reply.set_result(message)
            else:
                self._kill(BROKEN)

    def _read(self, descriptor: int) -> bool:
        """Read once from an output pipe, and return whether there may be more."""
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(descriptor)
            return False
        output = self._outputs[descriptor]
        output.add(data)
        if output.total > MOST_BYTES:
            self._kill(f"The code printed more than {MOST_BYTES // 2**20} MiB and was stopped.")
        return True

    def _drain(self) -> None:
        """Read what was written before the reply."""
        for descriptor in self._outputs:
            while self._outputs[descriptor].total <= MOST_BYTES and self._read(descriptor):
                continue

    def _end(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        self._ended.set_result(os.read(descriptor, 64).decode("ascii"))
        if self._reply is not None:
            self._receive()  # a reply that was sent before
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(self._why_ended())

    def _kill(self, reason: str) -> None:
        if self._reason or self._ended.done():  # once is enough: code can give thousands of reasons
            self._reason = self._reason or reason
            return
        self._reason = reason
        try:
            self._zygote.kill(self._name)
        except SandboxFailure:  # its sessions have ended with it
            return

    def _new_output(self) -> Output:
        return Output(self._limits.output_characters)

    def _close_descriptors(self) -> None:
        for each in (self._connection, self._stdout, self._stderr, self._report):
            self._loop.remove_reader(each)
        self._descriptors.close()


def _zygote_ended() -> SandboxFailure:
    return SandboxFailure("the process that starts sandboxes has ended, and this session with it")


def _explained(report: str, limits: SandboxLimits) -> Ended:
    """Why a process ended that was not killed by the host."""
    status = os.waitstatus_to_exitcode(int(report))
    if status in (MEMORY_STATUS, FULL_STATUS):
        return Ended(f"The code needed more than {limits.memory_mb} MiB in all its processes and was stopped.")
    if status == FILES_STATUS:
        return Ended(f"The code wrote more than {limits.file_mb} MiB of files, or too many of them, and was stopped.")
    if status == BROKEN_STATUS:
        return Ended(BROKEN)
    number = -status if status < 0 else status - 128
    if number == signal.SIGXCPU:
        return Ended(f"The code used more than {limits.cpu_s:g} s of CPU time and was stopped.", limit=True)
    if number == signal.SIGKILL:
        return Ended(f"The process was killed: the code needed more than {limits.memory_mb} MiB, or killed it itself.")
    if number in set(signal.Signals):
        return Ended(f"The process crashed with {signal.Signals(number).name}.")
    return Ended(f"The code ended its process with status {status}.")
