"""What can go wrong, as one tree.

::

    RlcoreError
    ├── UserError              bad input: shown without a traceback, exit code 2
    │   ├── ConfigError        keys and values of a run's configuration, all at once
    │   ├── DataError          a file or a row of data: which file, which row, which field
    │   ├── PluginError        a plugin that is missing, broken or of another version
    │   └── NotInstalledError  a part of rlcore or a library that the request needs
    ├── EngineError            an engine that died, hung or answered nonsense
    │   └── ContextFullError   a conversation that leaves the model no room to answer
    ├── ProcessError           one of a run's processes that failed or is gone, as the others see it
    └── EnvironmentFailure     an environment or a tool's backend that failed: the trajectory is not scored

Messages say what was wanted, what was found, where it came from and what mends it, in that order.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class RlcoreError(Exception):
    """Anything that rlcore raises on purpose."""


class UserError(RlcoreError):
    """Bad input: the command prints the message and ends with exit code 2, without a traceback."""

    def __init__(self, message: str, *, found: str | None = None, where: str | None = None, mend: str | None = None):
        self.message, self.found, self.where, self.mend = message, found, where, mend
        super().__init__(message)

    def __str__(self) -> str:
        rows = [("found", self.found), ("from", self.where), ("fix", self.mend)]
        return "\n".join([self.message, *(f"  {name:<6} {text}" for name, text in rows if text)])


class ConfigError(UserError):
    """Keys or values of a run's configuration."""


class DataError(UserError):
    """A data file or a row in it."""


class PluginError(UserError):
    """A plugin that is missing, broken, in conflict or of another version."""


class NotInstalledError(UserError):
    """A package that the request needs and that is not there."""


class EngineError(RlcoreError):
    """An engine that died, hung or answered nonsense."""


class ContextFullError(EngineError):
    """A conversation that leaves the model no room to answer."""


class ProcessError(RlcoreError):
    """One of the processes that train a run together failed or is gone: the others cannot go on."""


class EnvironmentFailure(RlcoreError):
    """An environment, or the backend of a tool, that failed: its trajectory is not scored, which is not zero."""


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The nearest known name as ``did you mean 'x'?``, or None when nothing is near."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else None
