"""Lines of JSON over a connection, and processes that answer them."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rlcore.json_files import parse_json
from rlcore.transport.process import ChildProcess
from rlcore.transport.remote import Channel, Ended

CHUNK = 1 << 16


class Lines:
    """Values that are sent and received as lines. What is received is untrusted.

    Args:
        channel: the connection
        longest: limit of a received line in bytes
    """

    def __init__(self, channel: Channel, longest: int) -> None:
        self.channel, self._longest = channel, longest
        self._received, self._buffer = bytearray(), memoryview(bytearray(CHUNK))

    def send(self, value: Any, deadline: float = math.inf) -> None:
        """Send a value, until ``deadline`` of ``time.monotonic``.

        Raises:
            Ended: the other side has ended, or does not read.
        """
        self.channel.write(json.dumps(value).encode() + b"\n", deadline)

    def receive(self, deadline: float = math.inf) -> Any:
        """Wait for the next value.

        Raises:
            Ended: the other side has ended, is late, or sent something else.
        """
        end = self._received.find(b"\n")
        while end < 0 and len(self._received) <= self._longest:
            count, searched = self.channel.read_into(self._buffer, deadline), len(self._received)
            self._received += self._buffer[:count]
            end = self._received.find(b"\n", searched)
        if not 0 <= end <= self._longest:
            raise Ended(f"sent a line of more than {self._longest:,} bytes")
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        try:
            return parse_json(line)
        except ValueError as error:
            raise Ended(f"sent a line that is not JSON: {error}") from None

    def ask(self, question: Any, timeout_s: float = math.inf) -> Any:
        """The value that answers another one. A failure ends the other side.

        Raises:
            Ended: as `send` and `receive`. The message says why, with what was printed last.
        """
        deadline = time.monotonic() + timeout_s
        try:
            self.send(question, deadline)
            return self.receive(deadline)
        except Ended as error:
            raise Ended(self.channel.why(error, timeout_s)) from None
        except BaseException:  # such as Ctrl-C: a late answer must not be taken for the next one
            self.channel.kill()
            raise


class LineProcess:
    """A process whose standard input is a socket: it reads lines there, and answers each of them with a line.

    It is started with the first question, and again after it has ended. It ends with this object, or this process.

    Args:
        command: the program and its arguments
        variables: its environment variables
        longest: limit of an answer in bytes
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], *, longest: int) -> None:
        self._command, self._variables, self._longest = command, variables, longest
        self._lock = threading.Lock()
        self.process: ChildProcess | None = None
        self._lines: Lines

    def ask(self, question: Any, timeout_s: float = math.inf) -> Any:
        """The answer to a question, after those to the questions of other threads.

        Raises:
            Ended: the process cannot be started, has ended, is late, or sent something else.
        """
        with self._lock:
            if self.process is None or not self.process.usable:
                try:
                    self.process = ChildProcess(self._command, self._variables)
                except OSError as error:
                    raise Ended(f"cannot be started: {error}") from None
                self._lines = Lines(self.process, self._longest)
            return self._lines.ask(question, timeout_s)

    def close(self) -> None:
        """Let the process end."""
        if self.process is not None:
            self.process.close()

    def kill(self) -> None:
        """End the process at once, also while another thread waits for an answer."""
        if self.process is not None:
            self.process.kill()


__all__ = ["LineProcess", "Lines"]
