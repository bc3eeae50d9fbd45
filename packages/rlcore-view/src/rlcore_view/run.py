"""A run: what it is, how far it is, and its metrics."""

from __future__ import annotations

import datetime
import fcntl
import os
import shlex
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rlcore.config.layers import Layer, leaves
from rlcore.config.origins import read_text, toml_tree
from rlcore.config.write import toml_value
from rlcore.errors import DataError, UserError
from rlcore.json_files import open_regular, read_json, refuse_special_files
from rlcore.plain_json import number
from rlcore.plugin_calls import error_text
from rlcore.redaction import mask_arguments, redact, redacted
from rlcore.rollouts.reading import size_of
from rlcore.runs.directory import asked_of, checkpoints_of, config_layer, run_of
from rlcore.runs.output import failure_in

from rlcore_view.curves import Curves, line_after
from rlcore_view.live_findings import LiveFindings
from rlcore_view.recent import Recent
from rlcore_view.stored import Stored

MEMORY, EARLY = "memory    ", "ended     early"
"""The beginnings of lines of the output about memory, and about an end before the last step that the run wanted."""
LOG_PART = 1 << 16
"""Bytes at both ends of the output in which lines are looked for."""
LONGEST_ACTIVITY = 200
"""Characters of the last line of the output."""
LOCK_S = 3.0
"""How long it is remembered whether a process holds the lock of a run."""
_CONFIGS: Recent[Layer] = Recent(200)
_FINDINGS: Recent[LiveFindings] = Recent(200)
_TEXTS: Recent[dict[str, Any]] = Recent(10_000)
_FAILURES: Recent[list[str]] = Recent(10_000)
_ENDED_EARLY: Recent[bool] = Recent(10_000)
"""Parts of the list of runs, which has all of them: a folder can have thousands."""


class ShownRun:
    """A run directory, read when something of it is asked for.

    Attributes:
        id: its name in the addresses of the page
        path: the directory
        stored: its rollouts
        last: its row in the list of runs when it was read last; None before
    """

    def __init__(self, id: str, path: Path) -> None:
        self.id, self.path, self.stored = id, path, Stored(path)
        self._curves = Curves(path / "metrics.jsonl")
        self._locked: tuple[float, bool] = (-LOCK_S, False)
        self._lock = threading.Lock()
        self.last: dict[str, Any] | None = None

    def empty(self, state: str) -> dict[str, Any]:
        """The row of the run in the list of runs, of which nothing is read."""
        return {
            "id": self.id,
            "path": str(self.path),
            **{"recipe": "", "model": "", "environment": "", "started": None, "state": state, "problem": ""},
            **{"step": 0, "steps": None, "last": {}, "spark": [], "activity": ""},
        }

    def line(self) -> dict[str, Any]:
        """The row of the run in the list of runs. A damaged run has the reason, and what can be read."""
        found = self.empty("ended")
        try:
            found |= self.known()
        except Exception as error:  # no damage of one run hides the others
            problem = error.line if isinstance(error, UserError) else error_text(error)
            found |= {"state": "damaged", "problem": problem}
        self.last = found
        return found

    def known(self) -> dict[str, Any]:
        """The part of `line` that is read. Raises if the run is damaged."""
        files = [self.path / name for name in ("config.toml", "asked.toml", "environment.json")]
        texts = _TEXTS.get(self.path, files, self._texts)
        with self._lock:
            self._curves.advance()
            numbers = {"step": self._curves.step, "last": dict(self._curves.last), "spark": self._curves.spark()}
        return {**texts, **numbers, **self._state(self._curves.step, texts["steps"])}

    def _texts(self) -> dict[str, Any]:
        """The part of `known` that does not change while the run goes."""
        refuse_special_files(self.path)
        path = self.path / "config.toml"
        # Without the origins, whose lines take most of the time: a folder can have thousands of runs.
        config = Layer(tree=toml_tree(read_text(path), str(path)), origins={}).tree
        steps = _setting(config, "trainer", "steps")
        return {
            "recipe": asked_of(self.path).recipe,
            "model": str(_setting(config, "model", "path") or ""),
            "environment": ", ".join(_environments(config)),
            "started": _started(self.path),
            "steps": steps if isinstance(steps, int) else None,
        }

    def whole(self) -> dict[str, Any]:
        """The row, the configuration, the files and the checkpoints. Raises `DataError` if the run is damaged."""
        files = [
            {"purpose": one.purpose, "step": one.step, "unfinished": one.unfinished} for one in self.stored.files()
        ]
        return {**self.line(), **self.about(), "files": files, "decodes": self.stored.tokenizer is not None}

    def about(self) -> dict[str, Any]:
        """The configuration, the command, the surroundings and the checkpoints. Raises as `whole`."""
        with _damage():
            layer, asked = self.config, asked_of(self.path)
        values = {".".join(key): value for key, value in leaves(redacted(layer.tree))}
        words = ["-r", asked.recipe] if asked.recipe else []
        words += [word for file in asked.files for word in ("-c", file)]
        return {
            "config": {key: toml_value(value) for key, value in values.items()},
            "origins": {".".join(key): layer.origin(key) for key, _ in leaves(layer.tree)},
            "command": shlex.join(mask_arguments(["rlcore", "run", *words, *asked.overrides])),
            "surroundings": dict([*_memory(self._log), *_surroundings(self.path)]),
            "checkpoints": [int(path.name) for path in checkpoints_of(self.path)],
        }

    def state(self) -> dict[str, Any]:
        """What changes while the run goes."""
        with self._lock:
            self._curves.advance()
            step = self._curves.step
        found = self._state(step, (self.last or self.line())["steps"])
        return {
            **{name: found[name] for name in ("state", "activity")},
            "step": step,
            "metrics": size_of(self.path / "metrics.jsonl"),
            "files": self.stored.fingerprint(),
        }

    def metrics(self, after: int) -> dict[str, Any]:
        """The lines of ``metrics.jsonl`` after a place in bytes; all of them if the file is another one by now."""
        path = self.path / "metrics.jsonl"
        lines = list(line_after(path, after))
        rows = [{name: number(value) for name, value in row.items() if _is_metric(value)} for row, _ in lines]
        return {"rows": rows, "next": lines[-1][1] if lines else min(after, size_of(path))}

    def findings(self) -> list[dict[str, Any]]:
        """What ``rlcore diagnose`` finds. Raises `DataError` if the run is damaged."""
        with _damage():
            if run_of(self.path) is None:  # the folder of an evaluation
                return []
            return _FINDINGS.get(self.path, [self.path / "config.toml"], lambda: LiveFindings(self.path)).all()

    @property
    def config(self) -> Layer:
        """The configuration. Raises `UserError` if it is damaged."""
        path = self.path / "config.toml"
        return _CONFIGS.get(path, [path], lambda: config_layer(self.path))

    @property
    def _log(self) -> Path:
        return self.path / "output.log"

    def _state(self, step: int, steps: int | None) -> dict[str, str]:
        """The state, the problem of a run that failed, and what a run does that has not ended a step."""
        if self._is_locked():
            lines = _lines_of(self._log)[-1:] if step == 0 else []
            activity = redact(" ".join("".join(lines).removeprefix("progress").split())[:LONGEST_ACTIVITY])
            return {"state": "running", "problem": "", "activity": activity}
        failure = _FAILURES.get(self._log, [self._log], lambda: failure_in(self._log))
        if failure:
            problem = redact(" ".join(part.strip() for part in failure[:2]))
            return {"state": "failed", "problem": problem, "activity": ""}
        # The folder of an evaluation has the configuration of a run, but not these.
        is_run = any((self.path / name).is_dir() for name in ("rollouts", "checkpoints"))
        is_whole = not is_run or steps is None or step >= steps
        ended = is_whole or _ENDED_EARLY.get(self._log, [self._log], lambda: _has_ended_early(self._log))
        return {"state": "ended" if ended else "stopped", "problem": "", "activity": ""}

    def _is_locked(self) -> bool:
        """Whether a process uses the run.

        A shared lock is taken for an instant, which fails while a process has the lock of the run. The answer is kept
        for a while, so that a process that starts meanwhile practically never finds the shared lock.
        """
        now = time.monotonic()
        if now - self._locked[0] >= LOCK_S:
            self._locked = now, _is_locked(self.path / ".lock")
        return self._locked[1]


def _is_metric(value: Any) -> bool:
    return value is None or isinstance(value, (int, float))


@contextmanager
def _damage() -> Iterator[None]:
    """Raise the errors of a configuration as those of damaged data, because nobody can change it in the page."""
    try:
        yield
    except UserError as error:
        raise DataError(error.message, found=error.found, where=error.where, fix=error.fix) from None


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


def _setting(config: Mapping[str, Any], *names: str) -> Any:
    value: Any = config
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _environments(config: Mapping[str, Any]) -> Iterator[str]:
    """The names of the environments."""
    tables = config.get("environment")
    for table in tables if isinstance(tables, list) else [tables]:
        name = _setting(table, "name") or _setting(table, "id") if isinstance(table, Mapping) else None
        if name:
            yield str(name)


def _started(run: Path) -> float | None:
    with suppress(OSError, ValueError, TypeError, KeyError, OverflowError):
        return datetime.datetime.fromisoformat(read_json(run / "environment.json")["time"]).timestamp()
    return None


def _memory(log: Path) -> Iterator[tuple[str, str]]:
    """What the output says last about memory: the estimate before the first step, and the peak at the end."""
    for line in [line for line in _lines_of(log) if line.startswith(MEMORY)][-1:]:
        yield "memory", line.removeprefix(MEMORY)


def _has_ended_early(log: Path) -> bool:
    return any(line.startswith(EARLY) for line in _lines_of(log))


def _lines_of(log: Path) -> list[str]:
    """The first and the last lines of the output. None if it cannot be read."""
    with suppress(OSError), open_regular(log) as file:
        first = file.read(LOG_PART)
        file.seek(max(0, size_of(log) - LOG_PART))
        text = b"\n".join([first, file.read(LOG_PART)]).decode("utf-8", "replace")
        return [line for line in text.splitlines() if line.strip()]
    return []


def _surroundings(run: Path) -> Iterator[tuple[str, str]]:
    """The names and texts of ``environment.json``; none if it is damaged."""
    known: Any = {}
    with suppress(OSError, ValueError):
        known = redacted(read_json(run / "environment.json"))
    for name, value in known.items() if isinstance(known, dict) else ():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", str(one)) for inner, one in value.items())
        elif isinstance(value, list):
            yield name, shlex.join(mask_arguments(list(map(str, value))))
        elif value is not None:
            yield name, str(value)


__all__ = ["ShownRun"]
