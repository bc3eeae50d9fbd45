"""The processes in which agents run. They stay warm between episodes, because the import of an agent takes seconds."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlcore.errors import EnvironmentFailure
from rlcore.redaction import redact
from rlcore.transport.hosting import lent_packages
from rlcore.transport.interpreter import Interpreter
from rlcore.transport.process import ChildProcess
from rlcore.transport.remote import absolute, raised

from rlcore_harness.config import HarnessConfig
from rlcore_harness.inside.given import Place

INSIDE = "rlcore_harness.inside.episode"
KEY_BYTES = 32
LONGEST_S = 1e6
"""Limit in seconds of an episode without a limit."""
LONGEST_TEXT = 4000


class Outcome(NamedTuple):
    """The end of an episode in a process that can answer."""

    reward: float | None = None
    error: Exception | None = None
    """What the agent raised."""
    left: str = ""
    """What it left running; empty if the process can be used again."""


class AgentInterpreter(Interpreter):
    """The interpreter of an agent."""

    @property
    def output(self) -> ChildProcess:
        """What it prints."""
        assert isinstance(self._channel, ChildProcess)
        return self._channel


class AgentProcess:
    """A process for episodes, one at a time. It is started by the first one, and keeps its key.

    Args:
        config: the agent and its interpreter
    """

    def __init__(self, config: HarnessConfig) -> None:
        self.key = secrets.token_urlsafe(KEY_BYTES)
        self._agent, self._python, self._variables = config.agent, config.python or sys.executable, config.variables
        self._named = config.agent or " ".join(config.command or ())
        self._interpreter: AgentInterpreter | None = None
        self._killed = False

    @property
    def usable(self) -> bool:
        """Whether it can run another episode, as far as known."""
        return self._interpreter is not None and self._interpreter.usable

    def start(self, base_url: str, root_url: str) -> AgentInterpreter:
        """The running interpreter. Raises `EnvironmentFailure` or `UserError` if it cannot be started."""
        if self._interpreter is None:
            self._interpreter = AgentInterpreter(
                self._python,
                variables={
                    "OPENAI_BASE_URL": base_url,
                    "OPENAI_API_KEY": self.key,
                    "ANTHROPIC_BASE_URL": root_url,
                    "ANTHROPIC_API_KEY": self.key,
                    # The OpenAI Agents SDK would send a record of each episode to OpenAI, with this key.
                    "OPENAI_AGENTS_DISABLE_TRACING": "1",
                    **self._variables,
                },
                paths=[os.getcwd()],
                packages=lent_packages(f"{INSIDE}:solve"),
            )
        if self._killed:  # while it started
            self.kill()
        return self._interpreter

    def load(self, base_url: str, root_url: str, *, timeout_s: float) -> None:
        """Import the agent. Raises as `Interpreter.describe`."""
        self.start(base_url, root_url).describe(str(self._agent), (), timeout_s=timeout_s)

    def solve(self, place: Place, task: Mapping[str, Any], *, folder: Path, timeout_s: float) -> Outcome:
        """Run the agent's function. Raises `EnvironmentFailure` if its process failed."""
        target = absolute(str(self._agent))
        arguments = {"target": target, "task": dict(task), "place": place._asdict(), "folder": str(folder)}
        answer, printed = self._call("solve", place, arguments, timeout_s)
        if not isinstance(answer, dict) or answer.keys() != {"reward", "error", "left"}:
            raise EnvironmentFailure(f"{self._agent}: the process sent something else than the end of an episode")
        reward, error, left = answer["reward"], answer["error"], str(answer["left"])[:LONGEST_TEXT]
        if isinstance(error, dict):
            kept = {str(name): text[:LONGEST_TEXT] for name, text in error.items() if isinstance(text, str)}
            failure = raised(str(self._agent), kept)
            return Outcome(error=EnvironmentFailure(f"{failure}{printed}"), left=left)
        return Outcome(reward if isinstance(reward, float) else None, left=left)

    def run(
        self, command: list[str], place: Place, *, variables: Mapping[str, str], folder: Path, timeout_s: float
    ) -> tuple[int, str]:
        """Run a program within the group of this process. Returns its exit status, and what it printed last."""
        arguments = {"command": command, "variables": dict(variables), "folder": str(folder)}
        status, printed = self._call("command", place, arguments, timeout_s)
        return int(status), printed

    def kill(self) -> None:
        """Kill it with its process group, also during an episode. A second call does nothing."""
        self._killed = True
        if self._interpreter is not None:
            self._interpreter.kill()

    def _call(self, name: str, place: Place, arguments: Mapping[str, Any], timeout_s: float) -> tuple[Any, str]:
        """The answer of a function of `INSIDE`, and what the process printed last, for messages."""
        other = self.start(place.base_url, place.root_url)
        other.output.forget_printed()
        try:
            answer = other.call(f"{INSIDE}:{name}", timeout_s=min(timeout_s, LONGEST_S), **arguments)
        except EnvironmentFailure as error:
            raise EnvironmentFailure(str(error).replace(f"{INSIDE}:{name}", self._named)) from None
        printed = other.output.printed()
        return answer, redact(f"; it printed last: {printed}") if printed else ""


class AgentProcesses:
    """The idle processes of one configuration."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[AgentProcess] = []
        self.told = False
        """Whether a warning was logged that processes cannot be used again."""

    def take(self, config: HarnessConfig) -> AgentProcess:
        """A process that no other episode uses, or a new one, which is not started yet."""
        with self._lock:
            while self._idle:
                if (found := self._idle.pop()).usable:
                    return found
        return AgentProcess(config)

    def put_back(self, process: AgentProcess) -> None:
        """Keep a process for a later episode."""
        with self._lock:
            self._idle.append(process)

    def close(self) -> None:
        """End the idle processes."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.kill()


_all: dict[int, AgentProcesses] = {}
_lock = threading.Lock()


def processes_of(config: HarnessConfig) -> AgentProcesses:
    """The processes of a configuration. They end with it, which is when a run ends."""
    with _lock:
        if (found := _all.get(id(config))) is None:
            found = _all[id(config)] = AgentProcesses()
            weakref.finalize(config, _end, id(config))
    return found


def _end(number: int) -> None:
    # Without the lock: the garbage collector may call this in a thread that holds it.
    _all.pop(number).close()
