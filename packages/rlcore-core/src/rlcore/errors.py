"""The exception hierarchy.

::

    RlcoreError
    ├── UserError              bad input: shown without a traceback, exit code 2
    │   ├── ConfigError        invalid keys or values of a run configuration, reported together
    │   ├── DataError          an invalid data file or row, with file, row and field
    │   ├── PluginError        a missing, broken or incompatible plugin
    │   ├── NotInstalledError  a missing package of rlcore or library
    │   ├── NotScoredError     no trajectory could be scored, exit code 1
    │   └── WriteError         a file of a run that cannot be written, for example on a full disk
    ├── EngineError            an engine that crashed, hung or returned invalid output
    │   └── ContextFullError   a conversation that fills the context of the model
    ├── EpisodeEnded           the policy no longer answers a harness: its turns or its context are used up
    ├── ComponentExitError     a component that tried to end the process
    ├── DivergenceError        training whose loss, gradient or weights are no longer finite: exit code 1
    ├── ProcessError           one of a run's processes that failed or is gone, as the others see it
    └── EnvironmentFailure     an environment that failed: the trajectory is not scored
        ├── ToolFailure        a tool's backend that failed
        └── SandboxFailure     a sandbox that failed, or that there is not; failing code is a `CodeResult`

Messages state what was expected, what was found, where it came from and how to fix it, in that order.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from typing import ClassVar

from rlcore.console.escaping import printable

SIMILAR = 0.6
"""Least similarity of names that are suggested, from 0 to 1."""


class RlcoreError(Exception):
    """Base class of all errors that rlcore raises deliberately."""

    exit_status: ClassVar[int] = 1
    """The exit status of a command that ends with this error."""


class ExplainedError(RlcoreError):
    """An error with the parts of its message: what is wrong, what was found, where it came from, how to fix it.

    As a text, the error is safe to show: secrets are masked, and nothing in it can begin a line or control a terminal.
    """

    def __init__(self, message: str, *, found: str | None = None, where: str | None = None, fix: str | None = None):
        self.message, self.found, self.where, self.fix = message, found, where, fix
        super().__init__(message)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The message, what was found, where and the fix. Further lines of a part are indented below it."""
        rows = [("found", self.found), ("from", self.where), ("fix", self.fix)]
        lines = self._headline()
        for name, text in rows:
            first, *others = (text or "").split("\n")
            lines += [f"  {name:<6} {first}", *(f"         {line}" for line in others)] if text else []
        return [printable(line) for line in lines]

    @property
    def line(self) -> str:
        """The message, what was found and where, on one line."""
        found, where = (" ".join((text or "").split()) for text in (self.found, self.where))
        return self.message + (f": {found}" if found else "") + (f" ({where})" if where else "")

    def _headline(self) -> list[str]:
        return [self.message]


class UserError(ExplainedError):
    """Bad input. The command prints the message without a traceback and exits with code 2."""

    exit_status = 2

    def _render_traceback_(self) -> list[str]:
        """What IPython shows, also without a traceback."""
        return [f"{type(self).__name__}: {self}"]


class ConfigError(UserError):
    """Invalid keys or values of a run configuration."""


class DataError(UserError):
    """An invalid data file or row."""


class PluginError(UserError):
    """A plugin that is missing, broken, in conflict or incompatible."""


class NotInstalledError(UserError):
    """A required package that is not installed."""


class WriteError(UserError):
    """A file of a run that cannot be written, for example on a full disk. The run is kept and can be resumed."""


class NotScoredError(UserError):
    """No trajectory could be scored. The input may be right, and a reward, environment or service failed."""

    exit_status = 1


class EngineError(RlcoreError):
    """An engine that crashed, hung or returned invalid output."""


class ContextFullError(EngineError):
    """A conversation that fills the context of the model, so that it cannot answer."""


class EpisodeEnded(RlcoreError):
    """The policy no longer answers a harness, because its turns or its context are used up, or the episode is over.

    Attributes:
        stop: why, as a value of `rlcore.types.Stop`
    """

    def __init__(self, message: str, stop: str) -> None:
        self.stop = stop
        super().__init__(message)


class DivergenceError(ExplainedError):
    """Training whose loss, gradient or weights are no longer finite. The command exits with code 1."""


class ComponentExitError(RlcoreError):
    """A component called ``sys.exit``, which would end the run without a result."""


class ProcessError(RlcoreError):
    """A process of a distributed run failed or exited, so the others cannot continue."""


class EnvironmentFailure(RlcoreError):
    """An environment that failed: its trajectory is not scored, which is not zero."""


class ToolFailure(EnvironmentFailure):
    """The backend of a tool that failed."""


class SandboxFailure(EnvironmentFailure):
    """A sandbox that failed or is not there. Code that fails in it does not raise: it has a `CodeResult`."""


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The closest known name as ``did you mean 'x'?``, or None when no name is similar.

    Names in the same folder or table, such as ``toy/default`` and ``toy/defalt``, are compared without it.
    """
    folder = name[: 1 + max(name.rfind("/"), name.rfind("."))]
    for near in get_close_matches(name, list(known), n=5, cutoff=SIMILAR):
        same = len(folder) if near.startswith(folder) else 0
        if SequenceMatcher(None, name[same:], near[same:]).ratio() >= SIMILAR:
            return f"did you mean {near!r}?"
    return None
