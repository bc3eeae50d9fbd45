"""``rlcore run --retries N``: a process that starts the run, and resumes it after failures that may be temporary."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rlcore.config.layers import leaves, override_of
from rlcore.config.resolved import Resolved
from rlcore.console.terminal import say
from rlcore.errors import EngineError, ProcessError, UserError
from rlcore.redaction import holds_mask, redact
from rlcore.runs.output import failure_in
from rlcore.session.exits import stops_handled
from rlcore.session.processes import world_size

TOLD = "RLCORE_RUN_DIRECTORY_FILE"
"""Environment variable: the file into which a run that is retried writes its directory and which overrides have
secrets."""
TEMPORARY = (EngineError.__name__, ProcessError.__name__)
"""Errors after which a run is resumed, as they are written to its log."""


def is_retried() -> bool:
    """Whether this process was started by `retried`."""
    return TOLD in os.environ


def is_another_try() -> bool:
    """Whether this process resumes a run that `retried` has started before."""
    return is_retried() and Path(os.environ[TOLD]).exists()


def tell_directory(path: Path, secrets: Sequence[int]) -> None:
    """Tell the directory of a run, and the places of its secrets, to the process that retries it."""
    Path(os.environ[TOLD]).write_text(json.dumps([str(path.absolute()), *secrets]), encoding="utf-8")


def secrets_among(overrides: Sequence[str], resolved: Resolved) -> list[int]:
    """The places of the overrides with secrets. No file of the run has them, so a resumed run needs them again.

    Raises:
        UserError: a secret is given elsewhere.
    """
    places = set()
    for path, value in leaves(resolved.tree()):
        if holds_mask(value):
            origin, key = resolved.origin(path), ".".join(path)
            _, text = override_of(origin)
            if text not in overrides:
                fix = f'give {key}="$SECRET" on the command line, or omit --retries'
                raise UserError(
                    "--retries can give a secret to the resumed run only if it is on the command line",
                    found=key,
                    where=redact(origin),
                    fix=fix,
                )
            places.add(overrides.index(text))
    return sorted(places)


def retried(arguments: list[str], overrides: Sequence[str], further: list[str], count: int) -> int:
    """Run ``rlcore`` with these arguments, resume the run at most ``count`` times, and return the last exit status.

    Args:
        arguments: those of the first start
        overrides: those among them, of which a later start gets those with secrets again
        further: other arguments of each later start in addition to ``run --resume DIRECTORY``
        count: number of times

    Raises:
        UserError: another launcher starts the processes.
    """
    if world_size() > 1:
        raise UserError(
            "--retries needs the processes of the run to be started by rlcore run",
            found="a launcher that started this process",
            fix="let the launcher start rlcore run --resume again, or set strategy.processes and omit the launcher",
        )
    with tempfile.TemporaryDirectory(prefix="rlcore-retries-") as folder:
        told = Path(folder) / "directory"
        for retry in range(count + 1):
            status, stopped = _run(arguments, told)
            if stopped or retry == count or not told.exists():
                break
            path, *secrets = json.loads(told.read_text(encoding="utf-8"))
            directory = Path(path)
            if not _is_temporary(status, directory):
                break
            reason = (failure_in(directory / "output.log") or [f"the process ended with status {status}"])[0]
            say(f"retry {retry + 1} of {count}: resuming {directory} after {reason}", err=True)
            if not retry:
                arguments = ["run", "--resume", path, *further, *(overrides[place] for place in secrets)]
    return status


def _run(arguments: list[str], told: Path) -> tuple[int, bool]:
    """Return the exit status of ``rlcore``, as of a shell, and whether a signal asked this process to stop it."""
    stopped = False

    def stop(number: int, frame: object) -> None:
        nonlocal stopped
        stopped = True
        with suppress(ProcessLookupError):
            process.send_signal(number)

    command, environment = [sys.executable, "-m", "rlcore", *arguments], {**os.environ, TOLD: str(told)}
    # In a new session, so that a signal of the terminal arrives once.
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    with stops_handled(stop):
        status = process.wait()
    return (status if status >= 0 else 128 - status), stopped


def _is_temporary(status: int, directory: Path) -> bool:
    """Whether a run ended because of an engine or a process, and was neither stopped nor given bad input."""
    if status in (128 + signal.SIGINT, 128 + signal.SIGTERM):
        return False
    failure = failure_in(directory / "output.log")
    return status > 128 or (status == 1 and (not failure or failure[0].startswith(TEMPORARY)))
