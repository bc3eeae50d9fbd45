"""The exception hierarchy.

::

    RlcoreError
    ├── UserError              bad input: shown without a traceback, exit code 2
    │   ├── ConfigError        invalid keys or values of a run configuration, reported together
    │   ├── DataError          an invalid data file or row, with file, row and field
    │   ├── PluginError        a missing, broken or incompatible plugin
    │   ├── NotInstalledError  a missing package of rlcore or library
    │   └── WriteError         a file of a run that cannot be written, for example on a full disk
    ├── EngineError            an engine that crashed, hung or returned invalid output
    │   └── ContextFullError   a conversation that fills the context of the model
    ├── DivergenceError        training whose loss, gradient or weights are no longer finite: exit code 1
    ├── ProcessError           one of a run's processes that failed or is gone, as the others see it
    └── EnvironmentFailure     an environment that failed: the trajectory is not scored
        └── ToolFailure        a tool's backend that failed

Messages state what was expected, what was found, where it came from and how to fix it, in that order.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class RlcoreError(Exception):
    """Base class of all errors that rlcore raises deliberately."""


class ExplainedError(RlcoreError):
    """An error with the parts of its message: what is wrong, what was found, where it came from, how to fix it."""

    def __init__(self, message: str, *, found: str | None = None, where: str | None = None, fix: str | None = None):
        self.message, self.found, self.where, self.fix = message, found, where, fix
        super().__init__(message)

    def __str__(self) -> str:
        rows = [("found", self.found), ("from", self.where), ("fix", self.fix)]
        return "\n".join([self.message, *(f"  {name:<6} {text}" for name, text in rows if text)])


class UserError(ExplainedError):
    """Bad input. The command prints the message without a traceback and exits with code 2."""


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


class EngineError(RlcoreError):
    """An engine that crashed, hung or returned invalid output."""


class ContextFullError(EngineError):
    """A conversation that fills the context of the model, so that it cannot answer."""


class DivergenceError(ExplainedError):
    """Training whose loss, gradient or weights are no longer finite. The command exits with code 1."""


class ProcessError(RlcoreError):
    """A process of a distributed run failed or exited, so the others cannot continue."""


class EnvironmentFailure(RlcoreError):
    """An environment that failed: its trajectory is not scored, which is not zero."""


class ToolFailure(EnvironmentFailure):
    """The backend of a tool that failed."""


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The closest known name as ``did you mean 'x'?``, or None when no name is similar."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else None
