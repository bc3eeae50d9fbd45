"""The last line of defence: an exception that escapes a command becomes one line and a file with the trace."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from contextlib import suppress
from importlib.metadata import packages_distributions
from pathlib import Path

from rlcore.console.escaping import printable
from rlcore.console.terminal import say, traceback_lines
from rlcore.plugins.discovery import discover
from rlcore.plugins.loading import FILE_MODULE, describe

STATUS = 70
"""The exit status of an internal error, ``EX_SOFTWARE`` of ``sysexits.h``."""
VARIABLE = "RLCORE_TRACE"
"""Environment variable: ``1`` prints the trace to stderr as well."""
LONGEST_LINE = 300
_LOG = "rlcore_log"


def logged_in(error: BaseException, log: Path) -> None:
    """Record that the log of a run contains the trace of an exception."""
    with suppress(AttributeError, TypeError):  # an exception type may forbid attributes
        setattr(error, _LOG, log)


def report(error: BaseException) -> int:
    """Print one line about an unexpected exception, with its component and the file with its trace.

    Returns:
        the exit status
    """
    lines = traceback_lines(error)
    text = " ".join(describe(_first(error)).split())[:LONGEST_LINE]
    say(f"error: {component(error)} failed: {text}; the trace is in {_trace_file(error, lines)}", err=True)
    if os.environ.get(VARIABLE) == "1":
        say(*lines, err=True)
    return STATUS


def component(error: BaseException) -> str:
    """The plugin, package or file whose code raised an exception, or called the library that raised it."""
    owners = {plugin.module.partition(":")[0].partition(".")[0]: plugin.origin for plugin in discover()}
    libraries = {*sys.stdlib_module_names, *packages_distributions()} - owners.keys()
    packages = []
    for frame, _ in reversed(list(traceback.walk_tb(_first(error).__traceback__ or error.__traceback__))):
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith(FILE_MODULE):
            return frame.f_code.co_filename
        packages.append(name.partition(".")[0])
        if packages[-1] not in libraries:
            return owners.get(packages[-1], packages[-1])
    return packages[0] if packages else "rlcore"


def _first(error: BaseException) -> BaseException:
    """The first exception of a group, or the exception itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _trace_file(error: BaseException, lines: list[str]) -> str:
    """The log of the run, if it has the trace, else a new temporary file."""
    log = getattr(error, _LOG, None)
    if isinstance(log, Path) and log.is_file():
        return str(log)
    try:
        handle, name = tempfile.mkstemp(prefix="rlcore-trace-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("".join(f"{printable(line)}\n" for line in lines))
        return name
    except OSError as failure:
        return f"no file ({failure.strerror}); set {VARIABLE}=1 to print it"
