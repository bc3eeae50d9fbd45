"""The processes in which agents run. They stay warm between episodes, because the import of an agent takes seconds."""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rlcore.episodes.deletion import delete_folder
from rlcore.errors import EnvironmentFailure
from rlcore.redaction import redact
from rlcore.transport.hosting import lent_packages
from rlcore.transport.interpreter import Interpreter
from rlcore.transport.process import INSIDE as TRANSPORT
from rlcore.transport.process import ChildProcess
from rlcore.transport.remote import absolute, raised

from rlcore_harness.config import HarnessConfig
from rlcore_harness.homes import Home
from rlcore_harness.inside.given import Place

INSIDE = "rlcore_harness.inside.episode"
CONFINE = "rlcore_harness.inside.confined:confine"
CONFINE_S = 30.0
KEY_BYTES = 32
TASK_FILE = "task.json"
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
        self._config, self._agent, self._python = config, config.agent, config.python or sys.executable
        self._named = config.agent or " ".join(config.command or ())
        self._interpreter: AgentInterpreter | None = None
        self._killed = False
        self._home: Home | None = None
        """The only folder in which a confined process can write."""

    @property
    def usable(self) -> bool:
        """Whether it can run another episode, as far as known."""
        return self._interpreter is not None and self._interpreter.usable

    def start(self, base_url: str, root_url: str) -> AgentInterpreter:
        """The running interpreter. Raises `EnvironmentFailure` or `UserError` if it cannot be started."""
        if self._interpreter is None:
            variables = self._config.variables
            if self._config.confined:
                self._home = Home()
                variables = {**dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(self._home.path)), **variables}
            self._interpreter = AgentInterpreter(
                self._python,
                variables={
                    "OPENAI_BASE_URL": base_url,
                    "OPENAI_API_KEY": self.key,
                    "ANTHROPIC_BASE_URL": root_url,
                    "ANTHROPIC_API_KEY": self.key,
                    # The OpenAI Agents SDK would send a record of each episode to OpenAI, with this key.
                    "OPENAI_AGENTS_DISABLE_TRACING": "1",
                    **variables,
                },
                paths=[os.getcwd()],
                packages=lent_packages(f"{INSIDE}:solve"),
            )
            if self._home is not None:
                self._confine(self._interpreter, self._home.path, root_url)
        if self._killed:  # while it started
            self.kill()
        return self._interpreter

    def _confine(self, interpreter: AgentInterpreter, home: Path, root_url: str) -> None:
        own = [str(Path(__file__).parent / "inside"), str(TRANSPORT)]
        words = [word for word in self._config.command or () if os.path.isfile(word)]
        file = Path(str(self._agent).rpartition(":")[0])
        interpreter.call(
            CONFINE,
            timeout_s=CONFINE_S,
            folder=str(home),
            port=urlsplit(root_url).port,
            readable=[os.path.abspath(path) for path in (*own, *words, *self._config.readable)],
            modules=[str(file.parent.absolute())] if file.suffix == ".py" else [],
        )

    def _folder(self, scratch: Path) -> str:
        """The working directory of an episode: ``scratch``, or a new folder of a confined process."""
        if self._home is None:
            return str(scratch)
        for path in self._home.path.iterdir():
            delete_folder(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return tempfile.mkdtemp(prefix="episode-", dir=self._home.path)

    def load(self, base_url: str, root_url: str, *, timeout_s: float) -> str:
        """Import the agent. Raises as `Interpreter.describe`.

        Returns: why its function cannot be called with a task and a policy; empty if it can.
        """
        interpreter = self.start(base_url, root_url)
        interpreter.describe(str(self._agent), (), timeout_s=timeout_s)
        target = absolute(str(self._agent))
        return str(interpreter.call(f"{INSIDE}:unfit", timeout_s=timeout_s, target=target))[:LONGEST_TEXT]

    def solve(self, place: Place, task: Mapping[str, Any], *, scratch: Path, timeout_s: float) -> Outcome:
        """Run the agent's function. Raises `EnvironmentFailure` if its process failed.

        Args:
            place: where the policy answers
            task: arguments of `inside.given.Task`
            scratch: the working directory, unless the process is confined to its own
            timeout_s: time limit in seconds
        """
        self.start(place.base_url, place.root_url)
        target = absolute(str(self._agent))
        arguments = {"target": target, "task": dict(task), "place": place._asdict(), "folder": self._folder(scratch)}
        answer, printed = self._call("solve", arguments, timeout_s)
        if not isinstance(answer, dict) or answer.keys() != {"reward", "error", "left"}:
            raise EnvironmentFailure(f"{self._agent}: the process sent something else than the end of an episode")
        reward, error, left = answer["reward"], answer["error"], str(answer["left"])[:LONGEST_TEXT]
        if isinstance(error, dict):
            kept = {str(name): text[:LONGEST_TEXT] for name, text in error.items() if isinstance(text, str)}
            failure = raised(str(self._agent), kept)
            return Outcome(error=EnvironmentFailure(f"{failure}{printed}"), left=left)
        return Outcome(reward if isinstance(reward, float) else None, left=left)

    def run(self, place: Place, task: Mapping[str, Any], *, scratch: Path, timeout_s: float) -> tuple[int, str]:
        """Run the command within the group of this process, as `solve`.

        Returns: its exit status, and what it printed last.
        """
        self.start(place.base_url, place.root_url)
        folder = self._folder(scratch)
        file = os.path.join(folder, TASK_FILE)
        Path(file).write_text(json.dumps(task), encoding="utf-8")
        words = [_absolute(word.replace("{task}", file)) for word in self._config.command or ()]
        variables = {"RLCORE_TASK": file, "RLCORE_SEED": str(place.seed)}
        status, printed = self._call("command", {"command": words, "variables": variables, "folder": folder}, timeout_s)
        return int(status), printed

    def kill(self) -> None:
        """Kill it with its process group, also during an episode. A second call does nothing."""
        self._killed = True
        if self._interpreter is not None:
            self._interpreter.kill()
        if self._home is not None:
            self._home.delete()

    def _call(self, name: str, arguments: Mapping[str, Any], timeout_s: float) -> tuple[Any, str]:
        """The answer of a function of `INSIDE`, and what the process printed last, for messages."""
        assert self._interpreter is not None
        self._interpreter.output.forget_printed()
        try:
            answer = self._interpreter.call(f"{INSIDE}:{name}", timeout_s=min(timeout_s, LONGEST_S), **arguments)
        except EnvironmentFailure as error:
            raise EnvironmentFailure(str(error).replace(f"{INSIDE}:{name}", self._named)) from None
        printed = self._interpreter.output.printed()
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


def _absolute(word: str) -> str:
    """A word of a command, with the absolute path of a file: the command runs in another folder."""
    return str(Path(word).absolute()) if Path(word).is_file() else word
